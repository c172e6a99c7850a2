//! What the answers of real engines say (`answers/`, named by release and kind), and the kinds of
//! answer that none of those recordings has.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use thunder_wire::Dialect::{self, Chat, Completions, Generate, Messages, Responses};
use thunder_wire::response::{ResponseFacts, Scanner};

fn read(answer: &[u8], dialect: Dialect, stream: bool) -> ResponseFacts {
    let mut scanner = Scanner::new(dialect, stream, false);
    scanner.feed(answer);
    scanner.finish();
    scanner.facts().clone()
}

macro_rules! recorded {
    ($name:literal, $dialect:expr) => {
        read(
            include_bytes!(concat!("answers/", $name)),
            $dialect,
            $name.ends_with(".sse"),
        )
    };
}

/// Prompt, completion, cached, and of the cached those from host and storage.
type Tokens = [Option<u64>; 5];

fn tokens(facts: &ResponseFacts) -> Tokens {
    [
        facts.prompt_tokens,
        facts.completion_tokens,
        facts.cached_tokens,
        facts.cached_host_tokens,
        facts.cached_storage_tokens,
    ]
}

#[test]
#[expect(clippy::too_many_lines, reason = "one line for each recording")]
fn usage_is_found_in_every_recorded_answer() {
    let plain = |prompt, completion, cached| [Some(prompt), Some(completion), cached, None, None];
    let unsaid = [None; 5];
    let tiers = [Some(334), Some(3), Some(320), Some(0), Some(0)];
    let storage = [Some(334), Some(3), Some(320), Some(0), Some(320)];
    let answers = [
        (
            recorded!("sglang-0.5.8-chat.sse", Chat),
            plain(18, 6, Some(17)),
            "length",
        ),
        (
            recorded!("sglang-0.5.23-chat.sse", Chat),
            plain(18, 6, Some(17)),
            "length",
        ),
        (
            recorded!("sglang-0.5.23-rust-chat.sse", Chat),
            plain(18, 6, None),
            "length",
        ),
        (
            recorded!("vllm-0.32.0-chat.sse", Chat),
            plain(128, 6, Some(96)),
            "length",
        ),
        (
            recorded!("sglang-0.5.23-chat-continuous.sse", Chat),
            plain(18, 4, Some(17)),
            "length",
        ),
        (
            recorded!("sglang-0.5.23-chat-tiers.sse", Chat),
            tiers,
            "length",
        ),
        (
            recorded!("sglang-0.5.23-chat-tiers.json", Chat),
            storage,
            "length",
        ),
        (
            recorded!("sglang-0.5.23-chat.json", Chat),
            plain(58, 12, Some(0)),
            "length",
        ),
        (
            recorded!("sglang-0.5.23-rust-chat.json", Chat),
            plain(58, 12, None),
            "length",
        ),
        (
            recorded!("vllm-0.32.0-chat.json", Chat),
            plain(128, 6, Some(0)),
            "length",
        ),
        (
            recorded!("sglang-0.5.23-rust-completions.json", Completions),
            plain(6, 8, None),
            "length",
        ),
        (
            recorded!("sglang-0.5.8-generate.json", Generate),
            plain(6, 8, Some(0)),
            "length",
        ),
        (
            recorded!("sglang-0.5.23-generate.sse", Generate),
            [Some(6), Some(4), Some(5), Some(0), None],
            "length",
        ),
        (
            recorded!("sglang-0.5.23-generate-tiers.json", Generate),
            [Some(960), Some(4), Some(944), Some(0), Some(944)],
            "length",
        ),
        // That release fills in zeros.
        (
            recorded!("sglang-0.5.10-responses.json", Responses),
            unsaid,
            "completed",
        ),
        (
            recorded!("sglang-0.5.23-responses.json", Responses),
            plain(16, 6, Some(15)),
            "max_output_tokens",
        ),
        (
            recorded!("sglang-0.5.10-messages.json", Messages),
            plain(16, 8, None),
            "max_tokens",
        ),
        (
            recorded!("sglang-0.5.23-messages.json", Messages),
            plain(16, 8, Some(7)),
            "max_tokens",
        ),
        (
            recorded!("vllm-0.32.0-messages.json", Messages),
            plain(15, 6, Some(0)),
            "max_tokens",
        ),
    ];
    for (index, (facts, expected, reason)) in answers.iter().enumerate() {
        assert_eq!(tokens(facts), *expected, "answer {index}");
        assert_eq!(
            facts.finish_reason.as_deref(),
            Some(*reason),
            "answer {index}"
        );
        assert_eq!((facts.done, &facts.error), (true, &None), "answer {index}");
        assert!(facts.response_id.is_some(), "answer {index}");
    }
}

#[test]
fn errors_are_found_wherever_an_engine_puts_them() {
    let over = recorded!("sglang-0.5.23-over-capacity.sse", Chat);
    assert!(
        over.first_event_error
            .as_deref()
            .unwrap()
            .starts_with("Input length (18014 tokens) exceeds")
    );
    assert_eq!((over.first_event_error_code, over.done), (Some(400), true));

    // The release before told it only after a first chunk, as a finish reason.
    let late = recorded!("sglang-0.5.8-over-capacity.sse", Chat);
    assert_eq!(
        (late.first_event_error, late.finish_reason.as_deref()),
        (None, Some("abort"))
    );

    for (facts, message) in [
        (
            recorded!("sglang-0.5.23-refused.json", Chat),
            "temperature must be a non-negative",
        ),
        (
            recorded!("sglang-0.5.23-rust-refused.json", Chat),
            "Failed to deserialize the JSON body",
        ),
        (
            recorded!("sglang-0.5.23-generate-refused.json", Generate),
            "max_new_tokens must be at least 0",
        ),
        (
            read(
                br#"{"type":"error","error":{"type":"x","message":"too long"}}"#,
                Messages,
                false,
            ),
            "too long",
        ),
        (
            read(br#"{"error":"just words"}"#, Completions, false),
            "just words",
        ),
    ] {
        assert!(
            facts.error.as_deref().unwrap().starts_with(message),
            "{facts:?}"
        );
        assert_eq!(facts.first_event_error, None);
    }
    let fine = recorded!("sglang-0.5.23-responses.json", Responses);
    assert_eq!(fine.error, None, "\"error\": null is no error");
}

#[test]
fn an_error_code_may_be_a_number_a_string_or_a_word() {
    for (code, expected) in [
        ("503", Some(503)),
        ("\"429\"", Some(429)),
        ("\"rate_limit\"", None),
        ("null", None),
    ] {
        let stream = format!(
            "data: {{\"error\":{{\"message\":\"m\",\"code\":{code}}}}}\n\ndata: [DONE]\n\n"
        );
        assert_eq!(
            read(stream.as_bytes(), Chat, true).first_event_error_code,
            expected,
            "{code}"
        );
    }
}

#[test]
fn only_the_first_event_is_the_first() {
    let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"message\":\"late\"}}\n\n";
    let facts = read(stream.as_bytes(), Chat, true);
    assert_eq!(
        (facts.first_event_error, facts.error.as_deref()),
        (None, Some("late"))
    );
}

#[test]
fn an_anthropic_stream_adds_up_what_the_cache_had() {
    let stream = concat!(
        "event: message_start\n",
        r#"data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"#,
        r#""usage":{"input_tokens":10,"cache_read_input_tokens":200,"cache_creation_input_tokens":30,"#,
        r#""output_tokens":1}}}"#,
        "\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\nevent: content_block_start\n",
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"bash"}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":""}}"#,
        "\n\nevent: message_delta\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":15}}"#,
        "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    let facts = read(stream.as_bytes(), Messages, true);
    assert_eq!(tokens(&facts), [Some(240), Some(15), Some(200), None, None]);
    assert_eq!(facts.tools, ["bash"]);
    assert_eq!(
        (facts.events, facts.decoded_events, facts.done),
        (7, 1, true)
    );
    assert_eq!(facts.finish_reason.as_deref(), Some("tool_use"));
    assert_eq!(facts.response_id.as_deref(), Some("msg_1"));

    let failed = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
    assert_eq!(
        read(failed.as_bytes(), Messages, true)
            .first_event_error
            .as_deref(),
        Some("busy")
    );
}

#[test]
fn a_responses_stream_ends_with_its_usage() {
    let created = r#"data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress","usage":null}}"#;
    let stream = [
        created,
        r#"data: {"type":"response.output_item.added","item":{"type":"function_call","name":"apply","arguments":""}}"#,
        r#"data: {"type":"response.function_call_arguments.delta","delta":"{}"}"#,
        r#"data: {"type":"response.output_text.delta","delta":"done"}"#,
        r#"data: {"type":"response.output_text.done","text":"done"}"#,
        concat!(
            r#"data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","error":null,"#,
            r#""output":[{"type":"function_call","name":"apply"},{"type":"function_call","name":"run"}],"#,
            r#""usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":30},"output_tokens":7}}}"#,
        ),
    ]
    .join("\n\n");
    let facts = read((stream + "\n\n").as_bytes(), Responses, true);
    assert_eq!(tokens(&facts), [Some(36), Some(7), Some(30), None, None]);
    assert_eq!(facts.tools, ["apply", "run"]);
    assert_eq!(
        (facts.events, facts.decoded_events, facts.done),
        (6, 2, true)
    );
    assert_eq!(facts.finish_reason.as_deref(), Some("completed"));
    assert_eq!(facts.response_id.as_deref(), Some("resp_1"));

    let running = read(format!("{created}\n\n").as_bytes(), Responses, true);
    assert_eq!((running.done, running.finish_reason), (false, None));

    let failed = format!(
        "{created}\n\n{}\n\n",
        r#"data: {"type":"response.failed","response":{"status":"failed","error":{"code":"x","message":"no"}}}"#
    );
    let failed = read(failed.as_bytes(), Responses, true);
    assert_eq!((failed.error.as_deref(), failed.done), (Some("no"), true));
}

#[test]
fn tools_are_named_in_chat_answers_whole_or_streamed() {
    let whole = br#"{"choices":[{"message":{"content":null,"tool_calls":[
        {"id":"1","type":"function","function":{"name":"bash","arguments":"{\"name\":\"no\"}"}},
        {"id":"2","type":"function","function":{"name":"e\u0064it","arguments":"{}"}},
        {"id":"3","type":"function","function":{"name":"bash","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#;
    assert_eq!(read(whole, Chat, false).tools, ["bash", "edit"]);
    let delta = concat!(
        r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"bash","arguments":""}}]}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":null,"arguments":"{"}}]}}]}"#,
        "\n\n",
    );
    let facts = read(delta.as_bytes(), Chat, true);
    assert_eq!(
        (facts.tools, facts.decoded_events),
        (vec!["bash".to_owned()], 1)
    );
}

#[test]
fn a_stream_with_several_choices_is_done_when_all_of_them_are() {
    let event = |index: u8, reason: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":{index},\"delta\":{{}},\"finish_reason\":{reason}}}]}}\n\n"
        )
    };
    let begun = event(0, "null") + &event(1, "null") + &event(1, "\"stop\"");
    assert!(!read(begun.as_bytes(), Chat, true).done);
    assert!(read((begun + &event(0, "\"length\"")).as_bytes(), Chat, true).done);
}

#[test]
fn a_batch_of_generate_adds_up() {
    let item = |prompt: u32, completion: u32| {
        format!(
            concat!(
                r#"{{"text":"x","meta_info":{{"id":"g{}","finish_reason":{{"type":"stop","matched":2}},"#,
                r#""prompt_tokens":{},"completion_tokens":{},"cached_tokens":1,"#,
                r#""cached_tokens_details":{{"device":0,"host":1}}}}}}"#,
            ),
            prompt, prompt, completion
        )
    };
    let batch = read(
        format!("[{}, {}]", item(6, 3), item(7, 4)).as_bytes(),
        Generate,
        false,
    );
    assert_eq!(tokens(&batch), [Some(13), Some(7), Some(2), Some(2), None]);
    assert_eq!(
        (batch.response_id.as_deref(), batch.finish_reason.as_deref()),
        (Some("g6"), Some("stop"))
    );

    let event = |index: u8, completion: u32, reason: &str| {
        format!(
            concat!(
                r#"data: {{"text":"x","index":{},"meta_info":{{"finish_reason":{},"prompt_tokens":6,"#,
                r#""completion_tokens":{}}}}}"#,
                "\n\n",
            ),
            index, reason, completion
        )
    };
    let stream = event(0, 1, "null")
        + &event(1, 1, "null")
        + &event(0, 2, "{\"type\":\"stop\"}")
        + &event(1, 5, "null");
    let facts = read(stream.as_bytes(), Generate, true);
    assert_eq!(tokens(&facts), [Some(12), Some(7), None, None, None]);
    assert_eq!((facts.decoded_events, facts.done), (4, false));
}

#[test]
fn a_truncated_body_is_not_done() {
    let facts = read(
        br#"{"id":"c","usage":{"prompt_tokens":3,"completion_tokens":4}"#,
        Chat,
        false,
    );
    assert_eq!((facts.prompt_tokens, facts.done), (Some(3), false));
    assert!(!read(b"", Chat, false).done);
    assert!(!read(b"<html>busy</html>", Chat, false).done);
}

#[test]
fn the_weights_version_is_read_where_an_engine_says_it() {
    assert_eq!(
        recorded!("sglang-0.5.23-chat.json", Chat)
            .weight_version
            .as_deref(),
        Some("default")
    );
    assert_eq!(
        recorded!("sglang-0.5.23-generate.sse", Generate)
            .weight_version
            .as_deref(),
        Some("default")
    );
    // In the responses API it is the client's own metadata that comes back.
    let echo = br#"{"id":"r","metadata":{"weight_version":"mine"},"status":"completed"}"#;
    assert_eq!(read(echo, Responses, false).weight_version, None);
}
