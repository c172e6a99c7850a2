//! A stream says the same and passes the same bytes however it is cut into pieces, and the usage
//! chunk that nobody asked for is all that goes missing.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use proptest::prelude::*;
use serde_json::{Value, json};
use thunder_wire::Dialect;
use thunder_wire::response::{Passed, ResponseFacts, Scanner};

/// One event of a chat stream, before it is framed.
#[derive(Debug, Clone)]
enum Event {
    Role,
    Text {
        text: String,
        index: u8,
    },
    Tool {
        name: Option<String>,
        arguments: String,
    },
    Finish {
        reason: String,
        index: u8,
    },
    /// Usage on a chunk that says something.
    Continuous {
        text: String,
        tokens: u32,
    },
    Usage {
        prompt: u32,
        completion: u32,
        cached: Option<u32>,
    },
    Tiers {
        device: u32,
        host: u32,
    },
    /// `sglext` and usage in one chunk.
    Both {
        prompt: u32,
    },
    Error {
        message: String,
        nested: bool,
        code: Value,
    },
    Done,
    Comment(String),
    Other(String),
    Garbage(String),
}

impl Event {
    fn data(&self) -> Option<String> {
        let chunk = |choices: Value| json!({"id": "c-1", "object": "chat.completion.chunk", "choices": choices});
        let delta = |index: u8, delta: Value| {
            chunk(
                json!([{"index": index, "delta": delta, "logprobs": null, "finish_reason": null}]),
            )
        };
        Some(match self {
            Self::Role => delta(0, json!({"role": "assistant", "content": ""})).to_string(),
            Self::Text { text, index } => delta(*index, json!({"content": text})).to_string(),
            Self::Tool { name, arguments } => {
                let call = json!({"index": 0, "function": {"name": name, "arguments": arguments}});
                delta(0, json!({"content": null, "tool_calls": [call]})).to_string()
            }
            Self::Finish { reason, index } => chunk(
                json!([{"index": index, "delta": {"content": null}, "finish_reason": reason}]),
            )
            .to_string(),
            Self::Continuous { text, tokens } => {
                let mut chunk = delta(0, json!({"content": text}));
                chunk["usage"] = json!({"prompt_tokens": 9, "completion_tokens": tokens});
                chunk.to_string()
            }
            Self::Usage {
                prompt,
                completion,
                cached,
            } => {
                let mut chunk = chunk(json!([]));
                chunk["usage"] = json!({
                    "prompt_tokens": prompt,
                    "completion_tokens": completion,
                    "prompt_tokens_details": cached.map(|cached| json!({"cached_tokens": cached})),
                });
                chunk.to_string()
            }
            Self::Tiers { device, host } => {
                let mut chunk = chunk(json!([]));
                chunk["usage"] = Value::Null;
                chunk["sglext"] =
                    json!({"cached_tokens_details": {"device": device, "host": host}});
                chunk.to_string()
            }
            Self::Both { prompt } => {
                let mut chunk = chunk(json!([]));
                chunk["usage"] = json!({"prompt_tokens": prompt, "completion_tokens": 1});
                chunk["sglext"] = json!({"cached_tokens_details": {"device": 1, "host": 0}});
                chunk.to_string()
            }
            Self::Error {
                message,
                nested,
                code,
            } => {
                let error = json!({"object": "error", "message": message, "code": code});
                (if *nested {
                    json!({"error": error})
                } else {
                    error
                })
                .to_string()
            }
            Self::Done => "[DONE]".to_owned(),
            Self::Garbage(text) => text.clone(),
            Self::Comment(_) | Self::Other(_) => return None,
        })
    }

    fn frame(&self, newline: &str, spaced: bool, lines: bool) -> String {
        let space = if spaced { " " } else { "" };
        match (self, self.data()) {
            (Self::Comment(text), _) => format!(":{text}{newline}{newline}"),
            (Self::Other(name), _) => format!("event: {name}{newline}id: 1{newline}{newline}"),
            (_, Some(data)) if lines => {
                // A space after a comma between members may be a line break as well.
                let data =
                    data.replace(",\"object\"", &format!(",{newline}data:{space}\"object\""));
                format!("data:{space}{data}{newline}{newline}")
            }
            (_, data) => format!("data:{space}{}{newline}{newline}", data.unwrap_or_default()),
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    let text = || {
        prop_oneof![
            Just(String::new()),
            "[a-z \"\\\\{}\\[\\]:,\u{e9}\u{4f60}\n]{1,12}"
        ]
    };
    let code = prop_oneof![
        Just(json!(503)),
        Just(json!("429")),
        Just(json!("bad")),
        Just(Value::Null)
    ];
    prop_oneof![
        1 => Just(Event::Role),
        8 => (text(), 0..2u8).prop_map(|(text, index)| Event::Text { text, index }),
        2 => (prop::option::of("[a-z]{1,3}"), text()).prop_map(|(name, arguments)| Event::Tool { name, arguments }),
        1 => ("[a-z]{3,6}", 0..2u8).prop_map(|(reason, index)| Event::Finish { reason, index }),
        2 => (text(), any::<u32>()).prop_map(|(text, tokens)| Event::Continuous { text, tokens }),
        2 => (1..9000u32, any::<u32>(), prop::option::of(0..99u32))
            .prop_map(|(prompt, completion, cached)| Event::Usage { prompt, completion, cached }),
        1 => (any::<u32>(), any::<u32>()).prop_map(|(device, host)| Event::Tiers { device, host }),
        1 => (1..9000u32).prop_map(|prompt| Event::Both { prompt }),
        1 => (text(), any::<bool>(), code)
            .prop_map(|(message, nested, code)| Event::Error { message, nested, code }),
        1 => Just(Event::Done),
        1 => "[a-z ]{0,9}".prop_map(Event::Comment),
        1 => "[a-z]{1,9}".prop_map(Event::Other),
        1 => "[\\[{\"a-z0-9:,\\]}\\\\]{1,20}".prop_map(Event::Garbage),
    ]
}

/// How events stand in the stream.
#[derive(Debug, Clone)]
struct Framing {
    newline: &'static str,
    spaced: bool,
    lines: bool,
    bom: bool,
    /// The last blank line is missing, or even the last line's end.
    unfinished: usize,
}

impl Framing {
    fn frames(&self, events: &[Event]) -> Vec<String> {
        let mut frames: Vec<String> = events
            .iter()
            .map(|event| event.frame(self.newline, self.spaced, self.lines))
            .collect();
        if let Some(last) = frames.last_mut() {
            last.truncate(last.len() - self.unfinished * self.newline.len());
        }
        if self.bom
            && let Some(first) = frames.first_mut()
        {
            first.insert(0, '\u{feff}');
        }
        frames
    }
}

fn framing() -> impl Strategy<Value = Framing> {
    let newline = prop::sample::select(vec!["\n", "\r\n", "\r"]);
    (
        newline,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        0..3usize,
    )
        .prop_map(|(newline, spaced, lines, bom, unfinished)| Framing {
            newline,
            spaced,
            lines,
            bom,
            unfinished,
        })
}

/// Feeds the stream, cut at these places.
fn scan(stream: &[u8], cuts: &[usize], dialect: Dialect, strip: bool) -> (ResponseFacts, Vec<u8>) {
    let mut scanner = Scanner::new(dialect, true, strip);
    let mut passed = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&stream.len()]) {
        let piece = &stream[from..to];
        match scanner.feed(piece) {
            Passed::Same => passed.extend_from_slice(piece),
            Passed::Changed(bytes) => passed.extend(bytes),
        }
        from = to;
    }
    passed.extend(scanner.finish());
    (scanner.facts().clone(), passed)
}

fn cuts(stream: &[u8], places: &[prop::sample::Index]) -> Vec<usize> {
    let mut cuts: Vec<usize> = places
        .iter()
        .map(|place| place.index(stream.len() + 1))
        .collect();
    cuts.sort_unstable();
    cuts
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        events in prop::collection::vec(event(), 0..12),
        framing in framing(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let stream = framing.frames(&events).concat().into_bytes();
        let single: Vec<usize> = (1..stream.len()).collect();
        for (name, dialect) in Dialect::ALL {
            for strip in [false, true] {
                let whole = scan(&stream, &[], dialect, strip);
                prop_assert_eq!(&scan(&stream, &cuts(&stream, &places), dialect, strip), &whole, "{}", name);
                prop_assert_eq!(&scan(&stream, &single, dialect, strip), &whole, "{} byte by byte", name);
            }
        }
    }

    #[test]
    fn nothing_is_cut_but_the_usage_chunk(events in prop::collection::vec(event(), 0..12), framing in framing()) {
        let frames = framing.frames(&events);
        let stream = frames.concat();
        let (facts, passed) = scan(stream.as_bytes(), &[], Dialect::Chat, false);
        prop_assert_eq!(passed, stream.as_bytes());

        let kept = events.iter().zip(&frames).filter(|(event, _)| !matches!(event, Event::Usage { .. }));
        let expected: String = kept.map(|(_, frame)| frame.as_str()).collect();
        let (stripped, passed) = scan(stream.as_bytes(), &[], Dialect::Chat, true);
        prop_assert_eq!(String::from_utf8(passed).unwrap(), expected);
        prop_assert_eq!(stripped, facts);
    }

    #[test]
    fn facts_are_those_of_the_events(events in prop::collection::vec(event(), 0..12), framing in framing()) {
        let stream = framing.frames(&events).concat();
        let (facts, _) = scan(stream.as_bytes(), &[], Dialect::Chat, false);
        let data: Vec<&Event> = events.iter().filter(|event| event.data().is_some()).collect();
        prop_assert_eq!(facts.events, data.len() as u64);

        let decoded = data.iter().filter(|event| match event {
            Event::Text { text, .. } | Event::Continuous { text, .. } => !text.is_empty(),
            Event::Tool { arguments, .. } => !arguments.is_empty(),
            _ => false,
        });
        let garbage = data.iter().any(|event| matches!(event, Event::Garbage(_)));
        if !garbage {
            prop_assert_eq!(facts.decoded_events, decoded.count() as u64);
        }
        let usage = data.iter().rev().find_map(|event| match event {
            Event::Usage { prompt, completion, .. } => Some((*prompt, *completion)),
            Event::Both { prompt } => Some((*prompt, 1)),
            Event::Continuous { tokens, .. } => Some((9, *tokens)),
            _ => None,
        });
        prop_assert_eq!(facts.prompt_tokens, usage.map(|usage| usage.0.into()));
        prop_assert_eq!(facts.completion_tokens, usage.map(|usage| usage.1.into()));
        let reason = data.iter().rev().find_map(|event| match event {
            Event::Finish { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        prop_assert_eq!(facts.finish_reason, reason);
        let mut tools = Vec::new();
        for event in &data {
            if let Event::Tool { name: Some(name), .. } = event && !tools.contains(name) {
                tools.push(name.clone());
            }
        }
        prop_assert_eq!(facts.tools, tools);
        let error = |event: &&Event| match event {
            Event::Error { message, code, .. } => {
                let code = code.as_i64().or_else(|| code.as_str().and_then(|code| code.parse().ok()));
                Some((message.clone(), code))
            }
            _ => None,
        };
        prop_assert_eq!(facts.error, data.iter().rev().find_map(error).map(|error| error.0));
        let first = data.first().and_then(error);
        prop_assert_eq!(facts.first_event_error, first.clone().map(|error| error.0));
        prop_assert_eq!(facts.first_event_error_code, first.and_then(|error| error.1));
    }

    #[test]
    fn any_bytes_pass_and_nothing_panics(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(&b"\n\r\"\\{}[]:,data: "[..])], 0..300),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
    ) {
        for (_, dialect) in Dialect::ALL {
            let whole = scan(&bytes, &[], dialect, false);
            prop_assert_eq!(&whole.1, &bytes);
            prop_assert_eq!(scan(&bytes, &cuts(&bytes, &places), dialect, false), whole);
        }
    }
}

/// Counts of whole events and of those with text.
fn counts(pieces: &[&str], dialect: Dialect) -> (u64, u64, bool) {
    let mut scanner = Scanner::new(dialect, true, false);
    for piece in pieces {
        scanner.feed(piece.as_bytes());
    }
    let facts = scanner.facts();
    (facts.events, facts.decoded_events, facts.done)
}

#[test]
fn the_end_of_an_event_is_not_taken_for_an_event() {
    let end = "ta: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    assert_eq!(
        counts(&["data: 1\n\nda", end, end], Dialect::Chat),
        (2, 1, false)
    );
}

#[test]
fn data_in_two_lines_is_not_taken_for_text() {
    let begin = "data: {\"delta\":{\"text\":\"nineteen-characters\"},\n";
    let delta = format!("{begin}data:           \"type\":\"content_block_delta\"}}\n\n");
    let stop = format!("{begin}data:           \"type\":\"message_stop\"}}\n\n");
    assert_eq!(
        begin.find("nineteen"),
        delta.rfind("content").map(|at| at - begin.len())
    );
    assert_eq!(
        counts(&["data: 1\n\n", &delta, &stop], Dialect::Messages),
        (3, 2, true)
    );
}

#[test]
fn an_event_longer_than_any_usage_chunk_is_passed_on_before_it_ends() {
    let mut scanner = Scanner::new(Dialect::Chat, true, true);
    let long = format!("data: {{\"choices\":[],\"x\":\"{}", "y".repeat(20_000));
    assert_eq!(scanner.feed(long.as_bytes()), Passed::Same);
    let rest = b"\",\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":6}}\n\n";
    assert_eq!(scanner.feed(rest), Passed::Same);
    assert_eq!(scanner.facts().prompt_tokens, Some(5));
}

#[test]
fn an_event_that_says_something_is_passed_on_before_it_ends() {
    let mut scanner = Scanner::new(Dialect::Chat, true, true);
    assert_eq!(scanner.feed(b"data: {\"choi"), Passed::Changed(Vec::new()));
    assert_eq!(
        scanner.feed(b"ces\":[{"),
        Passed::Changed(b"data: {\"choices\":[{".to_vec())
    );
    assert_eq!(
        scanner.feed(b"\"delta\":{\"content\":\"a\"}}]}"),
        Passed::Same
    );
    assert_eq!(scanner.feed(b"\n\n"), Passed::Same);
    assert_eq!(scanner.facts().decoded_events, 1);
}

#[test]
fn a_body_of_64_mib_is_read_without_being_kept() {
    let mut scanner = Scanner::new(Dialect::Chat, false, false);
    scanner.feed(b"{\"id\":\"c\",\"choices\":[{\"message\":{\"content\":\"");
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..64 {
        assert_eq!(scanner.feed(&piece), Passed::Same);
    }
    scanner.feed(b"\"},\"logprobs\":[");
    for _ in 0..64 {
        scanner.feed(&b"[1,\"]\"],".repeat(1 << 10));
    }
    scanner.feed(b"null],\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}");
    assert!(scanner.finish().is_empty());
    let facts = scanner.facts();
    assert_eq!(
        (facts.prompt_tokens, facts.completion_tokens, facts.done),
        (Some(3), Some(4), true)
    );
    assert_eq!(facts.finish_reason.as_deref(), Some("stop"));
}
