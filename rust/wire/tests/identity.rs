//! Who asks, in every form that clients write it, and what the router reads beside it.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::facts;
use serde_json::json;
use thunder_wire::Dialect::{Chat, Completions, Generate, Messages, Responses};
use thunder_wire::request::scan;

#[test]
fn every_form_of_identity_is_found_in_the_order_of_the_body() {
    let body = json!({
        "user": "u", "metadata": {"user_id": "claude", "session_id": "ms", "program_id": "mp", "other": "x"},
        "nvext": {"annotations": ["a"], "agent_context": {"trajectory_id": "t", "session_id": "s", "parent_trajectory_id": "pt"}},
        "vllm_xargs": {"agentic_context": {"program_id": 12, "parent_program_id": "pp"}},
        "agent_hint": {"session_id": "h"}, "extra_body": {"program_id": "e", "session_id": "es"},
        "session_params": {"id": "sp", "rid": null}, "job_id": -7, "session_id": "si", "program_id": "p",
        "parent_session_id": "ps", "prompt_cache_key": "k", "previous_response_id": "r",
    });
    let found: Vec<(&str, String)> = facts(&body.to_string(), Responses).identity;
    let expected = [
        ("user", "u"),
        ("metadata.user_id", "claude"),
        ("metadata.session_id", "ms"),
        ("metadata.program_id", "mp"),
        ("nvext.agent_context.trajectory_id", "t"),
        ("nvext.agent_context.session_id", "s"),
        ("nvext.agent_context.parent_trajectory_id", "pt"),
        ("vllm_xargs.agentic_context.program_id", "12"),
        ("vllm_xargs.agentic_context.parent_program_id", "pp"),
        ("agent_hint.session_id", "h"),
        ("extra_body.program_id", "e"),
        ("extra_body.session_id", "es"),
        ("session_params.id", "sp"),
        ("job_id", "-7"),
        ("session_id", "si"),
        ("program_id", "p"),
        ("parent_session_id", "ps"),
        ("prompt_cache_key", "k"),
        ("previous_response_id", "r"),
    ];
    assert_eq!(
        found
            .iter()
            .map(|(path, value)| (*path, value.as_str()))
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn identity_in_a_json_string_is_found_and_a_broken_one_says_nothing() {
    let context = |text: &str| json!({"vllm_xargs": {"agentic_context": text}}).to_string();
    let found = facts(
        &context(r#"{"session_id":"s\u00e9","is_last_step":true}"#),
        Chat,
    );
    assert_eq!(
        found.identity,
        [(
            "vllm_xargs.agentic_context.session_id",
            "s\u{e9}".to_owned()
        )]
    );
    assert!(found.is_final);
    for broken in ["{\"session_id\":\"s\",", "not json", "[1]", "\"s\"", ""] {
        let found = facts(&context(broken), Chat);
        assert_eq!(
            (found.identity.len(), found.is_final),
            (0, false),
            "{broken}"
        );
    }
}

#[test]
fn values_that_can_be_no_name_are_left_out() {
    for value in [
        "null",
        "true",
        "1.5",
        "[\"p\"]",
        "{}",
        "1e3",
        "99999999999999999999",
    ] {
        assert_eq!(
            facts(&format!("{{\"program_id\":{value}}}"), Chat).identity,
            [],
            "{value}"
        );
    }
    let long = "x".repeat(4097);
    assert_eq!(
        facts(&format!("{{\"program_id\":\"{long}\"}}"), Chat).identity,
        []
    );
}

#[test]
fn a_final_signal_is_true_and_may_stand_alone() {
    for (body, is_final, is_empty) in [
        (r#"{"session_final":true}"#, true, true),
        (
            r#"{"extra_body":{"is_last_step":true},"messages":[]}"#,
            true,
            true,
        ),
        (r#"{"program_done":true,"messages":null}"#, true, true),
        (
            r#"{"nvext":{"agent_context":{"trajectory_final":true}},"messages":[{"role":"user","content":""}]}"#,
            true,
            false,
        ),
        (r#"{"session_final":false,"messages":[]}"#, false, true),
        (r#"{"session_final":"true"}"#, false, true),
        (r#"{"metadata":{"session_final":true}}"#, false, true),
        (
            r#"{"session_final":true,"tools":[{"name":"ls"}]}"#,
            true,
            true,
        ),
    ] {
        let facts = facts(body, Chat);
        assert_eq!(
            (facts.is_final, facts.is_empty),
            (is_final, is_empty),
            "{body}"
        );
    }
    assert!(facts(r#"{"prompt":""}"#, Completions).is_empty);
    assert!(facts(r#"{"system":"s","messages":[]}"#, Messages).is_empty);
    assert!(!facts(r#"{"prompt":[1]}"#, Completions).is_empty);
    assert!(!facts(r#"{"input":"x"}"#, Responses).is_empty);
    assert!(!facts(r#"{"text":"x"}"#, Generate).is_empty);
}

#[test]
fn fields_that_the_router_reads_must_have_their_type_and_stand_once() {
    for (dialect, body, message) in [
        (Chat, r#"{"model":1}"#, "'model' must be a string (byte 9)"),
        (
            Chat,
            r#"{"stream":1}"#,
            "'stream' must be true or false (byte 10)",
        ),
        (
            Chat,
            r#"{"stream_options":[]}"#,
            "'stream_options' must be an object (byte 18)",
        ),
        (
            Chat,
            r#"{"stream_options":{"include_usage":"yes"}}"#,
            "'stream_options.include_usage' must be true or false (byte 35)",
        ),
        (
            Chat,
            r#"{"docker_ids":"c"}"#,
            "'docker_ids' must be an array of strings (byte 14)",
        ),
        (
            Chat,
            r#"{"extra_body":{"docker_ids":["c",1]}}"#,
            "'extra_body.docker_ids' must be an array of strings (byte 33)",
        ),
        (
            Chat,
            r#"{"model":"a","model":"b"}"#,
            "'model' is given twice (byte 13)",
        ),
        (
            Chat,
            r#"{"model":"a","mode\u006c":"b"}"#,
            "'model' is given twice (byte 13)",
        ),
        (
            Generate,
            r#"{"session_id":"a","x":1,"session_id":"a"}"#,
            "'session_id' is given twice (byte 24)",
        ),
        (
            Chat,
            r#"{"stream_options":{"include_usage":true,"include_usage":false}}"#,
            "'stream_options.include_usage' is given twice (byte 40)",
        ),
    ] {
        assert_eq!(
            scan(body.as_bytes(), dialect).unwrap_err().to_string(),
            message,
            "{body}"
        );
    }
    for body in [
        r#"{"model":null,"stream":null,"stream_options":null,"docker_ids":null,"n":null}"#,
        r#"{"temperature":1,"temperature":2}"#,
        r#"{"messages":"not a list","tools":"nor this","n":"x"}"#,
    ] {
        facts(body, Chat);
    }
}
