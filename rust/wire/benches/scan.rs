//! What a request and a chunk of an answer cost to read, beside building a `serde_json` tree.

use std::fmt::Write;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use thunder_wire::Dialect;
use thunder_wire::request::{self, Splice};
use thunder_wire::response::Scanner;

const SMALL: &str = concat!(
    r#"{"model": "mock-model", "messages": [{"role": "system", "content": "You are a helpful assistant."}, "#,
    r#"{"role": "user", "content": "Hello, what is the capital of France?"}], "max_tokens": 64, "temperature": 0.7}"#,
);

const DELTA: &str = concat!(
    r#"data: {"id":"8c5d825d4b794c9f9856ca8586df0750","object":"chat.completion.chunk","created":1796056654,"#,
    r#""model":"tiny-qwen3","choices":[{"index":0,"delta":{"reasoning_content":null,"content":" def\n"},"#,
    r#""logprobs":null,"finish_reason":null,"matched_stop":null}]}"#,
    "\n\n",
);

/// Source text as JSON holds it: a line break every 40 bytes or so, quotes, some indentation.
fn source(bytes: usize, seed: usize) -> String {
    const LINES: [&str; 6] = [
        r"    def read(self, limit: int = 4096) -> bytes:\n",
        r#"        \"\"\"Reads at most `limit` bytes.\"\"\"\n"#,
        r"        if self._closed:\n            return b''\n",
        r#"        logger.debug(\"read %d bytes from %s\", len(chunk), self)\n"#,
        r"        return self._buffer.take(min(limit, len(self._buffer)))\n\n",
        r"    # The peer may have gone away between the poll and the read.\n",
    ];
    LINES
        .iter()
        .cycle()
        .skip(seed)
        .scan(0, |size, line| {
            *size += line.len();
            (*size < bytes).then_some(*line)
        })
        .collect()
}

/// A coding agent's request of about 100 KB: system prompt, tools, calls and their results.
fn agent() -> String {
    let mut body =
        String::from(r#"{"model": "mock-model", "messages": [{"role": "system", "content": ""#);
    let _ = write!(
        body,
        "{}\"}}, {{\"role\": \"user\", \"content\": \"{}\"}}",
        source(6000, 0),
        source(1500, 1)
    );
    for turn in 0..18 {
        let _ = write!(
            body,
            concat!(
                r#", {{"role": "assistant", "content": "{}", "tool_calls": [{{"id": "call_{}", "type": "function", "#,
                r#""function": {{"name": "tool_{}", "arguments": "{{\"p0\": \"x\"}}"}}}}]}}, "#,
                r#"{{"role": "tool", "tool_call_id": "call_{}", "content": "{}"}}"#,
            ),
            source(200, turn),
            turn,
            turn % 8,
            turn,
            source(4300, turn),
        );
    }
    body.push_str(r#"], "tools": ["#);
    for tool in 0..8 {
        let comma = if tool == 0 { "" } else { ", " };
        let _ = write!(
            body,
            concat!(
                r#"{}{{"type": "function", "function": {{"name": "tool_{}", "description": "{}", "parameters": "#,
                r#"{{"type": "object", "properties": {{"p0": {{"type": "string", "description": "{}"}}}}, "#,
                r#""required": ["p0"]}}}}}}"#,
            ),
            comma,
            tool,
            source(300, tool),
            source(80, tool),
        );
    }
    body.push_str(r#"], "temperature": 1.0, "top_p": 0.95, "max_tokens": 4096, "stream": true}"#);
    body
}

fn requests(criterion: &mut Criterion) {
    let agent = agent();
    let accented = agent.replacen("peer", "pe\u{e9}r", 40);
    let pretty = serde_json::from_str::<serde_json::Value>(&agent)
        .and_then(|tree| serde_json::to_string_pretty(&tree))
        .unwrap_or_default();
    let ids: Vec<u32> = (0..30_000).map(|id| id * 7919 % 150_000).collect();
    let ids = format!("{{\"input_ids\":{ids:?}}}");
    for (name, body, dialect) in [
        ("small", SMALL, Dialect::Chat),
        ("agent", &agent, Dialect::Chat),
        ("agent_accented", &accented, Dialect::Chat),
        ("agent_pretty", &pretty, Dialect::Chat),
        ("token_ids", &ids, Dialect::Generate),
    ] {
        let mut group = criterion.benchmark_group(format!("request/{name}/{}", body.len()));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("scan", |bencher| {
            bencher.iter(|| request::scan(black_box(body.as_bytes()), dialect));
        });
        group.bench_function("serde_json", |bencher| {
            bencher
                .iter(|| serde_json::from_slice::<serde_json::Value>(black_box(body.as_bytes())));
        });
        group.finish();
    }
    let facts = request::scan(agent.as_bytes(), Dialect::Chat).unwrap_or_default();
    let splice = Splice {
        include_usage: true,
        rid: Some("0123456789abcdef"),
        ..Splice::default()
    };
    criterion.bench_function("request/agent/rewrite", |bencher| {
        bencher.iter(|| {
            facts
                .rewrite(black_box(agent.as_bytes()), &splice)
                .map(|found| found.map(|it| it.to_vec()))
        });
    });
}

fn answers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("answer/delta");
    for strip in [false, true] {
        let mut scanner = Scanner::new(Dialect::Chat, true, strip);
        group.bench_function(if strip { "strip" } else { "read" }, |bencher| {
            bencher.iter(|| scanner.feed(black_box(DELTA.as_bytes())));
        });
    }
    group.bench_function("serde_json", |bencher| {
        let data = DELTA.trim_start_matches("data: ");
        bencher.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(data.as_bytes())));
    });
    group.finish();
}

criterion_group!(benches, requests, answers);
criterion_main!(benches);
