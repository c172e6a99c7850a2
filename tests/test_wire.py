"""The wire room through its bindings: what crosses the boundary, and that nothing is copied.

What the readers find is held to its oracles in Rust (`rust/wire/tests`); here it is held to
Python's own `json`, and to what the relay relies on.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thunder_router._core import ResponseScanner, scan_request
from thunder_router.errors import InvalidBodyError

Dialect = Literal["chat", "completions", "responses", "messages", "generate"]
DIALECTS: tuple[Dialect, ...] = ("chat", "completions", "responses", "messages", "generate")

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
ROUTER_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "program_id": st.text(max_size=9) | st.integers(0, 99),
        "docker_ids": st.lists(st.text(max_size=9), max_size=3),
        "agent_hint": VALUES,
        "session_id": st.text(max_size=9) | st.none(),
        "stream": st.booleans(),
    },
)
BODIES = st.builds(
    lambda other, ours, first: {**ours, **other} if first else {**other, **ours},
    st.dictionaries(st.sampled_from(["temperature", "logit_bias", "x y", "\u4f60"]), VALUES),
    ROUTER_FIELDS,
    st.booleans(),
)


def encode(body: Any, ascii_only: bool, indent: int | None) -> bytes:
    return json.dumps(body, ensure_ascii=ascii_only, indent=indent).encode()


@given(BODIES, st.booleans(), st.sampled_from([None, 0, 2]), st.booleans())
def test_the_worker_gets_the_body_without_our_fields_however_it_was_written(
    body: dict[str, Any], ascii_only: bool, indent: int | None, drop_session: bool
) -> None:
    sent = encode(body, ascii_only, indent)
    expected = {
        k: v for k, v in body.items() if k not in {"program_id", "docker_ids", "agent_hint"}
    }
    if drop_session:
        expected.pop("session_id", None)
    if body.get("stream"):
        expected["stream_options"] = {"include_usage": True}
    forwarded = scan_request(sent, "chat").forward(
        sent, include_usage=True, drop=("session_id",) if drop_session else ()
    )
    assert json.loads(b"".join(forwarded)) == expected
    assert (forwarded[0] is sent) == (expected == body)


@given(st.text(), st.booleans())
def test_text_is_measured_as_python_decodes_it(text: str, ascii_only: bool) -> None:
    body = encode({"messages": [{"role": "user", "content": text}]}, ascii_only, None)
    facts = scan_request(body, "chat")
    assert (facts.text_bytes, facts.text_chars) == (len(text.encode()), len(text))


@given(st.binary(max_size=60) | st.text(alphabet='{}[]",:\\ntfu0e- ', max_size=60).map(str.encode))
def test_what_is_accepted_python_reads_as_well(body: bytes) -> None:
    for dialect in DIALECTS:
        try:
            scan_request(body, dialect)
        except InvalidBodyError:
            continue
        assert isinstance(json.loads(body), dict)


def test_a_body_without_router_fields_is_forwarded_as_the_same_object() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    [forwarded] = scan_request(body, "chat").forward(body, include_usage=True)
    assert forwarded is body


def test_router_fields_are_cut_and_what_the_worker_needs_is_spliced() -> None:
    body = b'{"program_id":"p", "model":"m", "stream":true, "docker_ids":["c"]}'
    facts = scan_request(body, "chat")
    assert facts.identity == (("program_id", "p"),)
    assert facts.docker_ids == ("c",)
    [forwarded] = facts.forward(
        body, include_usage=True, session_id="s\u00e9", rid="r", priority=-1, dp_rank=2
    )
    assert forwarded == (
        '{"session_id":"s\u00e9","rid":"r","priority":-1,"routed_dp_rank":2,'
        '"stream_options":{"include_usage":true}, "model":"m", "stream":true}'.encode()
    )


def test_only_fields_that_may_be_dropped_are() -> None:
    body = b'{"priority":1,"rid":"r","session_id":"s","routed_dp_rank":0}'
    facts = scan_request(body, "generate")
    [forwarded] = facts.forward(body, include_usage=False, drop=["rid", "routed_dp_rank"])
    assert forwarded == b'{"priority":1,"session_id":"s"}'
    with pytest.raises(ValueError, match="cannot drop"):
        facts.forward(body, include_usage=False, drop=("model",))  # type: ignore[arg-type]


def test_facts_belong_to_the_body_they_were_read_from() -> None:
    facts = scan_request(b'{"program_id":1}', "chat")
    with pytest.raises(InvalidBodyError, match="read from another body: it had 16 bytes"):
        facts.forward(b"{}", include_usage=False)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"model":"m","stream":"yes"}', r"'stream' must be true or false \(byte 22\)"),
        (b'{"model":"a","model":"b"}', r"'model' is given twice \(byte 13\)"),
        (b'{"a":"\xff"}', "not valid JSON: invalid UTF-8 at byte 6"),
        (b'{"a":1} trailing', "characters after the document at byte 8"),
        (b'\xef\xbb\xbf{"a":1}', "not valid JSON: expected a value at byte 0"),
        (b"[]", "must be a JSON object"),
        (b"", "unexpected end at byte 0"),
        (b'{"a":' * 128 + b"1" + b"}" * 128, "nested too deep at byte 635"),
    ],
)
def test_a_refusal_names_what_is_wrong_and_the_byte(body: bytes, message: str) -> None:
    with pytest.raises(InvalidBodyError, match=message):
        scan_request(body, "chat")


def test_only_bytes_and_known_dialects_are_taken() -> None:
    with pytest.raises(ValueError, match="no such dialect"):
        scan_request(b"{}", "grpc")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no such dialect"):
        ResponseScanner("grpc", stream=True, strip_usage=False)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ResponseScanner("chat", stream=True, strip_usage=False).feed("text")  # type: ignore[arg-type]


def sse(data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


DELTA = sse({"id": "c1", "choices": [{"index": 0, "delta": {"content": "a"}}]})
USAGE = sse({"id": "c1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}})
DONE = b"data: [DONE]\n\n"


def test_a_stream_passes_as_the_same_objects_but_for_its_usage_chunk() -> None:
    scanner = ResponseScanner("chat", stream=True, strip_usage=True)
    for chunk in (DELTA, DELTA + DELTA, b": keep-alive\n\n", DELTA):
        assert scanner.feed(chunk) is chunk
    assert scanner.feed(USAGE + DONE) == DONE
    assert scanner.finish() == b""
    assert (scanner.prompt_tokens, scanner.completion_tokens, scanner.decoded_events) == (7, 1, 4)
    assert (scanner.events, scanner.done, scanner.response_id) == (6, True, "c1")


@given(st.lists(st.sampled_from([DELTA, USAGE, DONE, b": c\n\n"])), st.lists(st.integers(1, 90)))
def test_a_stream_in_any_pieces_loses_its_usage_chunks_alone(
    events: list[bytes], sizes: list[int]
) -> None:
    stream = b"".join(events)
    scanner = ResponseScanner("chat", stream=True, strip_usage=True)
    passed, at = b"", 0
    for size in [*sizes, len(stream)]:
        passed += scanner.feed(stream[at : at + size])
        at += size
    assert passed + scanner.finish() == b"".join(event for event in events if event != USAGE)
    assert scanner.events == sum(event.startswith(b"data") for event in events)


def test_a_json_answer_is_read_in_pieces_and_passed_as_it_is() -> None:
    answer = {
        "id": "c1",
        "choices": [{"finish_reason": "tool_calls", "message": {"tool_calls": [
            {"function": {"name": "bash", "arguments": "{}"}}]}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3,
                  "prompt_tokens_details": {"cached_tokens": 5}},
        "sglext": {"cached_tokens_details": {"device": 1, "host": 3, "storage": 1}},
        "metadata": {"weight_version": "v2"},
    }  # fmt: skip
    scanner = ResponseScanner("chat", stream=False, strip_usage=True)
    for byte in json.dumps(answer).encode():
        piece = bytes([byte])
        assert scanner.feed(piece) is piece
    assert scanner.finish() == b""
    assert (scanner.prompt_tokens, scanner.completion_tokens) == (7, 3)
    assert (scanner.cached_tokens, scanner.cached_host_tokens) == (5, 3)
    assert scanner.cached_storage_tokens == 1
    assert (scanner.tools, scanner.finish_reason) == (("bash",), "tool_calls")
    assert (scanner.weight_version, scanner.done, scanner.error) == ("v2", True, None)


def test_the_first_event_tells_a_refusal_that_came_with_200() -> None:
    scanner = ResponseScanner("chat", stream=True, strip_usage=False)
    scanner.feed(sse({"error": {"message": "The request queue is full.", "code": 503}}) + DONE)
    assert scanner.first_event_error == scanner.error == "The request queue is full."
    assert scanner.first_event_error_code == 503


def test_facts_are_read_from_many_threads() -> None:
    body = (
        b'{"program_id":"p","messages":[{"role":"user","content":"hi"}],"a":['
        + b"1," * 999
        + b"1]}"
    )
    facts = scan_request(body, "chat")
    with ThreadPoolExecutor(8) as pool:
        forwarded = list(pool.map(lambda _: facts.forward(body, include_usage=True), range(200)))
    assert set(forwarded) == {(body.replace(b'"program_id":"p",', b""),)}
