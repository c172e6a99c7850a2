//! Bodies that are read, and JSON documents for property tests: any value, in any spelling.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Map, Value};
use thunder_wire::Dialect;
use thunder_wire::request::{RequestFacts, scan};

/// What is read of a body that is in order.
pub(crate) fn facts(body: &str, dialect: Dialect) -> RequestFacts {
    scan(body.as_bytes(), dialect).unwrap_or_else(|error| panic!("{error}: {body}"))
}

/// Strings with everything that a spelling may have to escape.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        8 => any::<char>(),
        4 => prop::char::range(' ', '~'),
        2 => prop::sample::select(vec!['"', '\\', '\n', '\t', '/', '\u{8}', '\u{7f}', '{', '}', ',']),
        2 => prop::char::range('\u{3000}', '\u{9fff}'),
        1 => prop::sample::select(vec!['\u{ac00}', '\u{d7a3}', '\u{f900}', '\u{ff21}', '\u{20000}', '\u{1f600}']),
    ];
    prop::collection::vec(character, 0..90).prop_map(String::from_iter)
}

/// Any value.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        // Exact in binary: serde_json rounds others its own way.
        any::<i32>().prop_map(|quarters| Value::from(f64::from(quarters) / 4.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key(), inner), 0..6)
                .prop_map(|members| Value::Object(Map::from_iter(members))),
        ]
    })
}

/// Keys: some that the readers know, and others.
pub(crate) fn key() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "model",
        "messages",
        "content",
        "role",
        "type",
        "text",
        "tools",
        "prompt",
        "input",
        "input_ids",
        "source",
        "image_url",
        "n",
        "stream_options",
        "metadata",
        "user_id",
        "extra_body",
        "program_id",
        "nvext",
        "agent_context",
        "session_id",
        "vllm_xargs",
        "agentic_context",
        "arguments",
        "sampling_params",
    ]);
    prop_oneof![known.prop_map(str::to_owned), "[a-z]{1,6}", text()]
}

/// A source of cheap choices, so that one seed spells one document one way.
pub(crate) struct Choices(pub(crate) u64);

impl Choices {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Spells a value: white space anywhere it may stand, characters escaped or not.
pub(crate) fn spell(value: &Value, choices: &mut Choices) -> String {
    let mut out = String::new();
    spell_into(value, choices, &mut out);
    out
}

fn spell_into(value: &Value, choices: &mut Choices, out: &mut String) {
    space(choices, out);
    match value {
        Value::String(text) => spell_text(text, choices, out),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                spell_into(item, choices, out);
            }
            space(choices, out);
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (key, item)) in members.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                space(choices, out);
                spell_text(key, choices, out);
                space(choices, out);
                out.push(':');
                spell_into(item, choices, out);
            }
            space(choices, out);
            out.push('}');
        }
        plain => out.push_str(&plain.to_string()),
    }
    space(choices, out);
}

fn space(choices: &mut Choices, out: &mut String) {
    out.push_str(match choices.below(8) {
        0 => " ",
        1 => "\n  ",
        2 => "\t",
        3 => "\r\n",
        _ => "",
    });
}

fn spell_text(text: &str, choices: &mut Choices, out: &mut String) {
    let escape_all = choices.below(8) == 0;
    out.push('"');
    for character in text.chars() {
        if escape_all || choices.below(24) == 0 {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escape(*unit, out);
            }
            continue;
        }
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '/' if choices.below(2) == 0 => out.push_str("\\/"),
            '\0'..='\x1f' => escape(character as u16, out),
            other => out.push(other),
        }
    }
    out.push('"');
}

fn escape(unit: u16, out: &mut String) {
    // Writing to a String cannot fail.
    let _ = if unit.is_multiple_of(2) {
        write!(out, "\\u{unit:04x}")
    } else {
        write!(out, "\\u{unit:04X}")
    };
}
