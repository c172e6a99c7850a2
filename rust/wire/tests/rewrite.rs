//! What the worker gets is the client's body, minus what was cut, plus what was spliced.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{Choices, spell, value};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use thunder_wire::request::{Optional, Rewrite, Splice, scan};
use thunder_wire::{BodyError, Dialect};

/// Members of an agent's context, as an object.
fn context() -> impl Strategy<Value = Value> {
    let keys = vec![
        "session_id",
        "trajectory_id",
        "program_id",
        "is_last_step",
        "other",
    ];
    let value = prop_oneof![Just(json!("s")), Just(json!(true))];
    prop::collection::btree_map(prop::sample::select(keys), value, 0..4)
        .prop_map(|members| json!(members))
}

/// An object with this member and perhaps another, on either side of it.
fn holding(key: &'static str) -> impl Strategy<Value = Value> {
    let encoded = context().prop_map(|context| Value::from(context.to_string()));
    let inner = prop_oneof![context(), encoded, value()];
    (inner, prop::option::of(value()), any::<bool>()).prop_map(move |(inner, other, first)| {
        let other = other.map(|other| ("kept".to_owned(), other));
        let members = [(key.to_owned(), inner)].into_iter().chain(other);
        let members: Vec<_> = if first {
            members.collect()
        } else {
            members.rev().collect()
        };
        Value::Object(Map::from_iter(members))
    })
}

/// Members of a body: router fields of every kind among others, each key once, in any order.
fn body() -> impl Strategy<Value = Map<String, Value>> {
    let name = |names: &'static [&'static str]| prop::sample::select(names);
    let id = || {
        prop_oneof![
            Just(Value::Null),
            Just(json!("p-1")),
            Just(json!(7)),
            Just(json!([1]))
        ]
    };
    let flag = || prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from)];
    let options = prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!({"continuous_usage_stats": true})),
        Just(json!({"include_usage": true, "x": [1]})),
        Just(json!({"x": {}, "include_usage": false})),
        Just(json!({"include_usage": null})),
    ];
    let rid = prop_oneof![
        Just(Value::Null),
        Just(json!("r")),
        Just(json!(["r1", "r2"]))
    ];
    let rank = prop_oneof![Just(Value::Null), Just(json!(1))];
    let member = prop_oneof![
        (
            name(&[
                "program_id",
                "job_id",
                "parent_program_id",
                "parent_session_id"
            ]),
            id()
        ),
        (
            name(&["session_final", "program_done", "is_last_step"]),
            flag()
        ),
        (
            name(&["session_id", "priority", "user", "prompt_cache_key"]),
            id()
        ),
        (Just("rid"), rid),
        (Just("routed_dp_rank"), rank),
        (Just("docker_ids"), Just(json!(["c1", "c2"]))),
        (Just("agent_hint"), prop_oneof![context(), value()]),
        (
            Just("extra_body"),
            prop_oneof![context(), holding("program_id")]
        ),
        (
            Just("nvext"),
            prop_oneof![holding("agent_context"), value()]
        ),
        (
            Just("vllm_xargs"),
            prop_oneof![holding("agentic_context"), value()]
        ),
        (Just("stream"), flag()),
        (Just("stream_options"), options),
        (
            name(&["temperature", "tools", "messages", "metadata", "logit_bias"]),
            value()
        ),
    ];
    prop::collection::vec(member, 0..9).prop_map(|members| {
        members
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    })
}

#[derive(Debug, Clone)]
struct Wish {
    include_usage: bool,
    drop: Vec<Optional>,
    session_id: Option<String>,
    rid: Option<String>,
    priority: Option<i64>,
    dp_rank: Option<u32>,
}

impl Wish {
    fn splice(&self) -> Splice<'_> {
        Splice {
            include_usage: self.include_usage,
            drop: &self.drop,
            session_id: self.session_id.as_deref(),
            rid: self.rid.as_deref(),
            priority: self.priority,
            dp_rank: self.dp_rank,
        }
    }
}

fn wish() -> impl Strategy<Value = Wish> {
    let optional = vec![
        Optional::SessionId,
        Optional::Rid,
        Optional::Priority,
        Optional::DpRank,
    ];
    (
        any::<bool>(),
        prop::sample::subsequence(optional, 0..=4),
        prop::option::of("[ -~é你]{0,12}"),
        prop::option::of("[a-f0-9]{8}"),
        prop::option::of(any::<i64>()),
        prop::option::of(0..8u32),
    )
        .prop_map(
            |(include_usage, drop, session_id, rid, priority, dp_rank)| Wish {
                include_usage,
                drop,
                session_id,
                rid,
                priority,
                dp_rank,
            },
        )
}

/// What the worker should get, by the simplest means.
fn expected(body: &Map<String, Value>, wish: &Wish) -> Map<String, Value> {
    const CUT: [&str; 10] = [
        "program_id",
        "parent_program_id",
        "parent_session_id",
        "job_id",
        "docker_ids",
        "session_final",
        "trajectory_final",
        "program_done",
        "is_last_step",
        "agent_hint",
    ];
    let in_extra_body = |key: &str| key == "session_id" || CUT[..9].contains(&key);
    let mut rest = Map::new();
    for (key, value) in body {
        let mut value = value.clone();
        let sifted = match (key.as_str(), &mut value) {
            ("extra_body", Value::Object(members)) => {
                let before = members.len();
                members.retain(|key, _| !in_extra_body(key));
                before > 0 && members.is_empty()
            }
            ("nvext", Value::Object(members)) => {
                members.shift_remove("agent_context").is_some() && members.is_empty()
            }
            ("vllm_xargs", Value::Object(members)) => {
                members.shift_remove("agentic_context").is_some() && members.is_empty()
            }
            _ => false,
        };
        if !sifted && !CUT.contains(&key.as_str()) {
            rest.insert(key.clone(), value);
        }
    }
    for (optional, name) in [
        (Optional::SessionId, "session_id"),
        (Optional::Rid, "rid"),
        (Optional::Priority, "priority"),
        (Optional::DpRank, "routed_dp_rank"),
    ] {
        if wish.drop.contains(&optional) {
            rest.shift_remove(name);
        }
    }
    let mut head = Map::new();
    let spliced = [
        ("session_id", wish.session_id.clone().map(Value::from)),
        ("rid", wish.rid.clone().map(Value::from)),
        ("priority", wish.priority.map(Value::from)),
    ];
    for (name, value) in spliced {
        if let Some(value) = value
            && rest.get(name).is_none_or(Value::is_null)
        {
            rest.shift_remove(name);
            head.insert(name.into(), value);
        }
    }
    if let Some(rank) = wish.dp_rank
        && rest.get("routed_dp_rank").is_none_or(Value::is_null)
    {
        rest.shift_remove("routed_dp_rank");
        head.insert("routed_dp_rank".into(), rank.into());
    }
    if wish.include_usage && body.get("stream") == Some(&Value::Bool(true)) {
        match rest.get_mut("stream_options") {
            None => {
                head.insert("stream_options".into(), json!({"include_usage": true}));
            }
            Some(Value::Object(options)) => {
                if let Some(asked) = options.get_mut("include_usage") {
                    *asked = true.into();
                } else {
                    let mut asking = Map::new();
                    asking.insert("include_usage".into(), true.into());
                    asking.append(options);
                    *options = asking;
                }
            }
            Some(options) => *options = json!({"include_usage": true}),
        }
    }
    head.append(&mut rest);
    head
}

proptest! {
    #[test]
    fn a_compact_body_is_changed_in_exactly_the_spans_cut_and_spliced(body in body(), wish in wish()) {
        let text = serde_json::to_string(&body).unwrap();
        let facts = scan(text.as_bytes(), Dialect::Chat).unwrap();
        let rewrite = facts.rewrite(text.as_bytes(), &wish.splice()).unwrap();
        let expected = serde_json::to_string(&expected(&body, &wish)).unwrap();
        let bytes = rewrite.as_ref().map_or_else(|| text.clone().into_bytes(), Rewrite::to_vec);
        if let Some(rewrite) = rewrite {
            prop_assert_eq!(rewrite.size(), bytes.len());
        }
        prop_assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }

    #[test]
    fn a_body_in_any_spelling_means_the_same_afterwards(body in body(), wish in wish(), seed: u64) {
        let text = spell(&Value::Object(body.clone()), &mut Choices(seed));
        let facts = scan(text.as_bytes(), Dialect::Completions).unwrap();
        let rewrite = facts.rewrite(text.as_bytes(), &wish.splice()).unwrap();
        let bytes = rewrite.map_or_else(|| text.clone().into_bytes(), |rewrite| rewrite.to_vec());
        let found: Value = serde_json::from_slice(&bytes).unwrap();
        prop_assert_eq!(found, Value::Object(expected(&body, &wish)), "{}", text);
    }

    #[test]
    fn a_body_of_another_length_is_refused(body in body(), more in 1..9usize) {
        let text = serde_json::to_string(&body).unwrap();
        let facts = scan(text.as_bytes(), Dialect::Chat).unwrap();
        let other = text.clone() + &" ".repeat(more);
        let error = facts.rewrite(other.as_bytes(), &Splice::default()).unwrap_err();
        prop_assert_eq!(error, BodyError::AnotherBody { expected: text.len(), got: other.len() });
    }
}

fn forwarded(body: &str, splice: &Splice<'_>) -> String {
    let facts = scan(body.as_bytes(), Dialect::Chat).unwrap();
    let rewrite = facts.rewrite(body.as_bytes(), splice).unwrap();
    rewrite.map_or_else(
        || body.to_owned(),
        |rewrite| String::from_utf8(rewrite.to_vec()).unwrap(),
    )
}

#[test]
fn commas_are_right_wherever_a_field_is_cut() {
    for (body, left) in [
        (r#"{"program_id":1}"#, "{}"),
        (r#"{ "program_id" : 1 }"#, "{  }"),
        (r#"{"program_id":1,"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":2,"program_id":1}"#, r#"{"a":2}"#),
        (r#"{"a":2,"program_id":1,"b":3}"#, r#"{"a":2,"b":3}"#),
        (r#"{"program_id":1,"job_id":2}"#, "{}"),
        (r#"{"a":2,"program_id":1,"job_id":2}"#, r#"{"a":2}"#),
        (r#"{"program_id":1,"a":2,"job_id":2}"#, r#"{"a":2}"#),
        (r#"{"program_id":1,"job_id":2,"a":2}"#, r#"{"a":2}"#),
        (
            r#"{"nvext":{"x":1,"agent_context":{}},"a":2}"#,
            r#"{"nvext":{"x":1},"a":2}"#,
        ),
        (
            r#"{"nvext":{"agent_context":{},"x":1}}"#,
            r#"{"nvext":{"x":1}}"#,
        ),
        (r#"{"nvext":{"agent_context":{}},"a":2}"#, r#"{"a":2}"#),
        (
            r#"{"extra_body":{},"nvext":{}}"#,
            r#"{"extra_body":{},"nvext":{}}"#,
        ),
        (r#"{"program\u005fid":1,"a":2}"#, r#"{"a":2}"#),
    ] {
        assert_eq!(forwarded(body, &Splice::default()), left, "{body}");
    }
}

#[test]
fn a_session_id_is_kept_dropped_or_replaced_as_the_caller_says() {
    let body = r#"{"session_id":"mine","a":1}"#;
    let ours = Splice {
        session_id: Some("o\"urs\n"),
        ..Splice::default()
    };
    let dropped = Splice {
        drop: &[Optional::SessionId],
        ..Splice::default()
    };
    let replaced = Splice {
        drop: &[Optional::SessionId],
        ..ours
    };
    assert_eq!(forwarded(body, &Splice::default()), body);
    assert_eq!(forwarded(body, &ours), body);
    assert_eq!(forwarded(body, &dropped), r#"{"a":1}"#);
    assert_eq!(
        forwarded(body, &replaced),
        r#"{"session_id":"o\"urs\u000a","a":1}"#
    );
    assert_eq!(
        forwarded(r#"{"session_id":null}"#, &ours),
        r#"{"session_id":"o\"urs\u000a"}"#
    );
}

#[test]
fn usage_is_only_asked_for_where_a_stream_needs_asking() {
    let splice = Splice {
        include_usage: true,
        ..Splice::default()
    };
    for (dialect, asks) in [
        (Dialect::Chat, true),
        (Dialect::Completions, true),
        (Dialect::Responses, false),
        (Dialect::Messages, false),
        (Dialect::Generate, false),
    ] {
        let body = br#"{"stream":true}"#;
        let facts = scan(body, dialect).unwrap();
        assert_eq!(
            facts.rewrite(body, &splice).unwrap().is_some(),
            asks,
            "{dialect:?}"
        );
    }
    assert_eq!(
        forwarded(r#"{"stream":false}"#, &splice),
        r#"{"stream":false}"#
    );
    assert_eq!(
        forwarded(r#"{"stream":null}"#, &splice),
        r#"{"stream":null}"#
    );
}
