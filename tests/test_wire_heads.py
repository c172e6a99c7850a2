"""Heads: what is taken for plain, and what a worker and a client are sent of them."""

from typing import Any

import httptools
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from thunder_router._core import (
    Headers,
    answer_head,
    read_plain_answer,
    read_plain_request,
    request_head,
)

PLAIN = b"POST /v1/x?y=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"


class Read:
    """What llhttp makes of the same bytes."""

    def __init__(self, data: bytes) -> None:
        self.target = self.body = b""
        self.lines: list[tuple[bytes, bytes]] = []
        self.kept = self.complete = False
        self._parser: Any = httptools.HttpRequestParser(self)
        self._parser.feed_data(data)
        self.start = self._parser.get_method(), self._parser.get_http_version()

    def on_url(self, part: bytes) -> None:
        self.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        self.lines.append((name, value))

    def on_headers_complete(self) -> None:
        self.kept = self._parser.should_keep_alive()

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.complete = True


LATIN = st.text(st.characters(max_codepoint=255), max_size=8)
TEXT = LATIN.map(lambda text: text.encode("latin-1"))
NAMES = TEXT | st.sampled_from(
    [b"Connection", b"content-length", b"Transfer-Encoding", b"Expect", b"X-A", b"Host", b"TE"]
)
VALUES = TEXT | st.sampled_from([b"2", b"02", b"+2", b"keep-alive", b"close", b"chunked", b" 2 "])
BREAKS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\n "])
LINES = st.tuples(NAMES, st.sampled_from([b": ", b":", b" : "]), VALUES, BREAKS).map(b"".join)
STARTS = st.sampled_from(
    [
        b"POST / HTTP/1.1\r\n",
        b"POST /\xff HTTP/1.1\r\n",
        b"POST  / HTTP/1.1\r\n",
        b"POST /a#b HTTP/1.1\r\n",
        b"POST http://a/ HTTP/1.1\r\n",
        b"POST / HTTP/1.0\r\n",
        b"GET / HTTP/1.1\r\n",
        b"\r\nPOST / HTTP/1.1\r\n",
    ]
)


@given(STARTS, st.lists(LINES, max_size=4), st.booleans())
@example(b"POST / HTTP/1.1\r\n", [b"A:  1 \x80\r\n", b"Connection: Keep-Alive\r\n"], True)
def test_a_plain_head_is_read_as_llhttp_reads_it(
    start: bytes, lines: list[bytes], measured: bool
) -> None:
    length = b"Content-Length: 2\r\n" if measured else b""
    head = b"".join([start, *lines, length, b"\r\n"])
    found = read_plain_request(head + b"{}x")
    if found is None:
        return
    target, headers, size, announced = found
    read = Read(head + b"{}"[:announced])
    assert (target, headers.lines, size) == (read.target, read.lines, len(head))
    assert (read.start, read.kept) == ((b"POST", "1.1"), True)
    assert (read.complete, len(read.body)) == (announced <= 2, min(announced, 2))


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (PLAIN.replace(b"POST", b"PUT"), "method"),
        (PLAIN.replace(b"1.1", b"1.0"), "version"),
        (PLAIN.replace(b"Content-Length: 2", b"A: b"), "no length"),
        (PLAIN.replace(b"Host: a", b"Content-Length: 2"), "two lengths"),
        (PLAIN.replace(b": 2", b": +2"), "length is no number"),
        (PLAIN.replace(b": 2", b": 1" + 15 * b"0"), "length is too long a number"),
        (PLAIN.replace(b"Host: a", b"Transfer-Encoding: chunked"), "chunked"),
        (PLAIN.replace(b"Host: a", b"Connection: close"), "closes"),
        (PLAIN.replace(b"Host: a", b"Connection: keep-alive, X"), "lists a header"),
        (PLAIN.replace(b"Host: a", b"expect: 100-continue"), "expects"),
        (PLAIN.replace(b"Host: a", b"Upgrade: h2c"), "upgrade"),
        (PLAIN.replace(b"Host: a", b"Host : a"), "space before the colon"),
        (PLAIN.replace(b"Host: a", b"Host: a\r\n b"), "folded"),
        (PLAIN.replace(b"Host: a", b"Host: a "), "space at the end"),
        (PLAIN.replace(b"Host: a", b"Host: a\x00"), "control character"),
        (PLAIN.replace(b"Host: a\r\n", b"Host: a\n"), "bare line feed"),
        (PLAIN.replace(b"/v1", b"http://a/v1"), "not in origin form"),
        (PLAIN.replace(b"Host: a", b"\r\n".join([b"A: b"] * 256)), "257 lines"),
        (PLAIN.replace(b"Host: a", b"Host: " + 70_000 * b"a"), "long"),
        (PLAIN[:-1], "not whole"),
    ],
)
def test_what_leaves_room_for_opinion_is_not_plain(head: bytes, why: str) -> None:
    assert read_plain_request(PLAIN) is not None
    assert read_plain_request(head) is None, why


def test_headers_are_found_in_any_case_and_of_repeats_the_last() -> None:
    headers = Headers([(b"X-A", b"1"), (b"x-a", b"2"), (b"B", b"")])
    assert (len(headers), headers.get(b"X-a"), headers.get(b"b")) == (3, b"2", b"")
    assert headers.get(b"c") is None
    assert headers.lowered == [(b"x-a", b"1"), (b"x-a", b"2"), (b"b", b"")]


def test_a_worker_is_sent_what_is_end_to_end_and_our_framing() -> None:
    lines = [
        (b"Host", b"client"),
        (b"X-One", b"1"),
        (b"Connection", b"keep-alive, X-Two"),
        (b"x-two", b"2"),
        (b"Authorization", b"Bearer client"),
        (b"X-API-Key", b"client"),
        (b"X-Data-Parallel-Rank", b"7"),
        (b"X-One", b"again"),
        (b"Trailer", b"x"),
    ]
    head = request_head(
        b"POST",
        b"/a",
        Headers(lines),
        prefix=b"/p",
        host=b"worker",
        authorization=b"Bearer worker",
        own_credentials=False,
        rank=3,
        length=0,
        request_id=b"id",
    )
    assert head == (
        b"POST /p/a HTTP/1.1\r\nHost: worker\r\nAuthorization: Bearer worker\r\n"
        b"X-Data-Parallel-Rank: 3\r\nX-One: 1\r\nX-One: again\r\nX-Request-Id: id\r\n"
        b"Content-Length: 0\r\n\r\n"
    )


def test_a_client_is_sent_what_is_end_to_end_and_our_framing() -> None:
    headers = Headers([(b"Server", b"u"), (b"Content-Length", b"2"), (b"keep-alive", b"5")])
    whole = answer_head(
        200, b"OK", headers, measured=True, chunked=False, closes=False, request_id=b"id"
    )
    assert whole == (
        b"HTTP/1.1 200 OK\r\nServer: u\r\nContent-Length: 2\r\nx-request-id: id\r\n\r\n"
    )
    named = Headers([(b"X-Request-ID", b"own"), (b"Content-Length", b"2")])
    open_ended = answer_head(
        299, b"", named, measured=False, chunked=True, closes=True, request_id=b"id"
    )
    assert open_ended == (
        b"HTTP/1.1 299 \r\nX-Request-ID: own\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n"
    )


class ReadAnswer(Read):
    """What llhttp makes of an answer."""

    def __init__(self, data: bytes) -> None:
        self.reason = self.body = b""
        self.lines = []
        self.kept = self.complete = False
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(data)
        self.status = self._parser.get_status_code()

    def on_status(self, part: bytes) -> None:
        self.reason += part


ANSWERS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 503 Not \xff\r\n",
        b"HTTP/1.1 404 \r\n",
        b"HTTP/1.1 404\r\n",
        b"HTTP/1.1 204 None\r\n",
        b"HTTP/1.1 100 Continue\r\n",
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 2000 OK\r\n",
    ]
)


@given(ANSWERS, st.lists(LINES, max_size=4), st.booleans(), st.sampled_from([b"{}", b"{", b"{}x"]))
@example(b"HTTP/1.1 200 OK\r\n", [b"A:  1 \x80\r\n", b"Connection: Keep-Alive\r\n"], True, b"{}")
def test_a_plain_answer_is_read_as_llhttp_reads_it(
    start: bytes, lines: list[bytes], measured: bool, body: bytes
) -> None:
    length = b"Content-Length: 2\r\n" if measured else b""
    data = b"".join([start, *lines, length, b"\r\n", body])
    found = read_plain_answer(data)
    if found is None:
        return
    status, reason, headers, whole = found
    read = ReadAnswer(data)
    assert (status, reason, headers.lines) == (read.status, read.reason, read.lines)
    assert (whole, True, True) == (read.body, read.kept, read.complete)


def test_an_answer_is_plain_only_in_one_piece() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    found = read_plain_answer(answer)
    assert found is not None
    assert (found[0], found[1], found[3]) == (200, b"OK", b"{}")
    for data in (answer[:-1], answer + b"x", answer.replace(b"200", b"304")):
        assert read_plain_answer(data) is None
