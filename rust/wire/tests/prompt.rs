//! What a request asks for, and how much there is to read.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod common;

use common::{Choices, facts, spell};
use proptest::prelude::*;
use serde_json::json;
use thunder_wire::Dialect::{self, Chat, Completions, Generate, Messages, Responses};

/// Text, media and token ids of a body: bytes, items, their bytes, ids.
fn size(body: &str, dialect: Dialect) -> (u64, u64, u64, u64) {
    let facts = facts(body, dialect);
    (
        facts.text_bytes,
        facts.media_items,
        facts.media_bytes,
        facts.token_ids,
    )
}

#[test]
#[expect(clippy::too_many_lines, reason = "one line for each form")]
fn text_media_and_ids_are_told_apart_in_every_dialect() {
    let url = format!("data:image/png;base64,{}", "A".repeat(1000));
    let media = u64::try_from(url.len()).unwrap();
    for (dialect, body, expected) in [
        (
            Chat,
            json!({"messages": [{"role": "user", "content": "four"}, {"role": "tool", "tool_call_id": "c", "content": "five5"}]}),
            (9, 0, 0, 0),
        ),
        (
            Chat,
            json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "four"},
            {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}]}),
            (4, 2, media + 4, 0),
        ),
        (
            Chat,
            json!({"messages": [{"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "ls", "arguments": "{\"a\":1}"}}]}]}),
            (2 + 2 + 7, 0, 0, 0),
        ),
        (
            Chat,
            json!({"messages": [], "tools": [{"type": "function", "function": {"name": "ls"}}]}),
            (46, 0, 0, 0),
        ),
        (Chat, json!({"messages": [], "tools": []}), (0, 0, 0, 0)),
        (
            Chat,
            json!({"messages": [], "tools": null, "input_ids": [1, 2, 3]}),
            (0, 0, 0, 3),
        ),
        (
            Completions,
            json!({"prompt": "four", "suffix": "six666"}),
            (10, 0, 0, 0),
        ),
        (
            Completions,
            json!({"prompt": ["four", "five5"]}),
            (9, 0, 0, 0),
        ),
        (Completions, json!({"prompt": [1, 22, 333]}), (0, 0, 0, 3)),
        (
            Completions,
            json!({"prompt": [[1, 22], [333], []]}),
            (0, 0, 0, 3),
        ),
        (
            Generate,
            json!({"text": ["four", "five5"], "image_data": [url, "x.png"]}),
            (9, 2, media + 5, 0),
        ),
        (
            Generate,
            json!({"input_ids": [[1, 2], [3]], "sampling_params": {"stop": "not text"}}),
            (0, 0, 0, 3),
        ),
        (
            Generate,
            json!({"text": "four", "image_data": null, "video_data": "v.mp4"}),
            (4, 1, 5, 0),
        ),
        (
            Messages,
            json!({"system": [{"type": "text", "text": "four", "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "document", "source": {"data": "five5", "type": "text", "media_type": "text/plain"}},
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "six666"}]}]}]}),
            (15, 1, 4, 0),
        ),
        (
            Messages,
            json!({"messages": [{"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "c2lnbmF0dXJl"},
            {"type": "tool_use", "id": "t", "name": "ls", "input": {"image_url": "p"}}]}]}),
            (2 + 2 + 17, 0, 0, 0),
        ),
        (
            Responses,
            json!({"instructions": "four", "input": "five5", "text": {"format": {"type": "text"}}}),
            (9, 0, 0, 0),
        ),
        (
            Responses,
            json!({"input": [
            {"role": "user", "content": [{"type": "input_text", "text": "four"}, {"type": "input_image", "image_url": url}]},
            {"type": "reasoning", "encrypted_content": "AAAAAAAA", "summary": []},
            {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "five5"}]}),
            (4 + 2 + 2 + 5, 1, media, 0),
        ),
    ] {
        assert_eq!(
            size(&body.to_string(), dialect),
            expected,
            "{dialect:?} {body}"
        );
    }
}

proptest! {
    #[test]
    fn text_is_measured_as_if_it_were_decoded(text in common::text(), more in common::text(), seed: u64) {
        let body = spell(&json!({"messages": [{"role": "user", "content": text}, {"content": more}]}), &mut Choices(seed));
        let facts = facts(&body, Chat);
        let all = text + &more;
        let is_wide = |character: &char| {
            matches!(u32::from(*character),
                0x3000..=0x9FFF | 0xAC00..=0xD7FF | 0xF900..=0xFAFF | 0xFF00..=0xFFFF | 0x2_0000..=0x3_FFFF)
        };
        prop_assert_eq!(facts.text_bytes, all.len() as u64);
        prop_assert_eq!(facts.text_chars, all.chars().count() as u64);
        prop_assert_eq!(facts.wide_chars, all.chars().filter(is_wide).count() as u64, "{}", all.escape_unicode());
        prop_assert_eq!(facts.messages, 2);
    }

    #[test]
    fn tools_are_measured_as_the_json_they_are(name in "[a-z]{1,9}", number in any::<i32>(), text in "[ -!#-\\[\\]-~]{0,40}") {
        let tools = json!([{"name": name, "parameters": {"a": [number, true, null], "b": text}}]);
        let facts = facts(&json!({"tools": tools, "messages": []}).to_string(), Chat);
        prop_assert_eq!(facts.text_bytes, tools.to_string().len() as u64);
        prop_assert_eq!(facts.text_chars, facts.text_bytes);
    }
}

#[test]
fn what_is_asked_for_is_read_in_every_dialect() {
    for (dialect, body, expected) in [
        (
            Chat,
            r#"{"model":"m","stream":true,"n":3,"max_tokens":5,"max_completion_tokens":9}"#,
            (3, Some(9)),
        ),
        (
            Chat,
            r#"{"model":"m","stream":true,"n":null,"max_tokens":null}"#,
            (1, None),
        ),
        (
            Completions,
            r#"{"model":"m","stream":true,"n":0,"max_tokens":5.0}"#,
            (1, None),
        ),
        (
            Responses,
            r#"{"model":"m","stream":true,"max_output_tokens":7,"n":2}"#,
            (1, Some(7)),
        ),
        (
            Messages,
            r#"{"model":"m","stream":true,"max_tokens":7}"#,
            (1, Some(7)),
        ),
        (
            Generate,
            r#"{"model":"m","stream":true,"sampling_params":{"n":2,"max_new_tokens":8}}"#,
            (2, Some(8)),
        ),
        (
            Generate,
            r#"{"model":"m","stream":true,"sampling_params":[{"max_new_tokens":8},{"max_new_tokens":6}]}"#,
            (1, Some(8)),
        ),
    ] {
        let facts = facts(body, dialect);
        assert_eq!((facts.n, facts.max_new_tokens), expected, "{body}");
        assert_eq!(
            (facts.model.as_deref(), facts.stream),
            (Some("m"), true),
            "{body}"
        );
    }
    let chosen = facts(
        r#"{"priority":-3,"rid":"r","stream_options":{"include_usage":true}}"#,
        Chat,
    );
    assert_eq!(
        (chosen.priority, chosen.rid.as_deref(), chosen.include_usage),
        (Some(-3), Some("r"), true)
    );
    let batch = facts(r#"{"priority":"high","rid":["a","b"]}"#, Generate);
    assert_eq!((batch.priority, batch.rid), (None, None));
}

#[test]
fn the_prefix_is_the_leading_system_prompt_and_the_tools() {
    let prefix = |body: serde_json::Value, dialect| facts(&body.to_string(), dialect).prefix;
    let system = json!({"role": "system", "content": "You are"});
    let developer = json!({"content": "Also", "role": "developer"});
    let user = |text: &str| json!({"role": "user", "content": text});
    let tools = json!([{"name": "ls"}]);

    let alone = prefix(json!({"messages": [system, user("a")]}), Chat);
    assert!(alone.is_some());
    assert_eq!(
        alone,
        prefix(json!({"messages": [system, user("b"), system]}), Chat),
        "only the leading ones"
    );
    let both = prefix(json!({"messages": [system, developer, user("a")]}), Chat);
    assert_ne!(alone, both);
    let with_tools = prefix(
        json!({"messages": [system, user("a")], "tools": tools}),
        Chat,
    );
    assert_ne!(alone, with_tools);
    assert_eq!(
        with_tools,
        prefix(
            json!({"tools": tools, "messages": [system, user("c")]}),
            Chat
        ),
        "in either order"
    );
    assert_ne!(
        with_tools,
        prefix(json!({"messages": [user("a")], "tools": tools}), Chat)
    );
    assert_ne!(
        None,
        prefix(json!({"messages": [user("a")], "tools": tools}), Chat)
    );

    assert_eq!(prefix(json!({"messages": [user("a"), system]}), Chat), None);
    assert_eq!(
        prefix(json!({"messages": [user("a")], "tools": []}), Chat),
        None
    );
    assert_eq!(prefix(json!({"prompt": "You are"}), Completions), None);
    assert_eq!(prefix(json!({"text": "You are"}), Generate), None);
    assert_eq!(
        prefix(json!({"system": null, "messages": [user("a")]}), Messages),
        None
    );
    assert!(
        prefix(
            json!({"system": "You are", "messages": [user("a")]}),
            Messages
        )
        .is_some()
    );
    assert!(prefix(json!({"instructions": "You are", "input": "a"}), Responses).is_some());
}
