"""The wire room through its bindings: what crosses the boundary, and that nothing is copied."""

import json

import pytest

from thunder_router._core import ResponseScanner, scan_request
from thunder_router.errors import InvalidBodyError


def test_a_body_without_router_fields_is_forwarded_as_the_same_object() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    assert scan_request(body, "chat").forward(body, include_usage=True) is body


def test_router_fields_are_cut_and_usage_is_asked_for() -> None:
    body = b'{"program_id":"p", "model":"m", "stream":true, "docker_ids":["c"]}'
    facts = scan_request(body, "chat")
    assert facts.identity == (("program_id", "p"),)
    assert facts.docker_ids == ("c",)
    assert facts.forward(body, include_usage=True, rid="r") == (
        b'{"rid":"r","stream_options":{"include_usage":true}, "model":"m", "stream":true}'
    )


def test_a_wrong_type_names_the_field_and_the_byte() -> None:
    with pytest.raises(InvalidBodyError, match=r"'stream' must be true or false \(byte 22\)"):
        scan_request(b'{"model":"m","stream":"yes"}', "chat")


def test_an_unknown_dialect_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no such dialect"):
        scan_request(b"{}", "grpc")  # type: ignore[arg-type]


def test_a_stream_passes_as_the_same_objects_and_its_usage_chunk_is_cut() -> None:
    delta = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    usage = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    scanner = ResponseScanner("chat", stream=True, strip_usage=True)
    assert scanner.feed(delta) is delta
    assert scanner.feed(b"data: " + json.dumps(usage).encode() + b"\n\n") == b""
    assert scanner.feed(b"data: [DONE]\n\n") == b"data: [DONE]\n\n"
    assert scanner.finish() == b""
    assert (scanner.prompt_tokens, scanner.completion_tokens, scanner.decoded_events) == (7, 1, 1)
    assert scanner.done
