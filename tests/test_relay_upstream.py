"""The worker's connection: any split of the byte stream gives the same answer."""

import asyncio
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thunder_router.errors import ProtocolError, UpstreamError, WorkerResetError
from thunder_router.relay.upstream import Upstream


class Line(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.unsent = 0

    def write(self, data: object) -> None:
        pass

    def writelines(self, list_of_data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return self.unsent


@dataclass
class Home:
    parked: list[Upstream] = field(default_factory=list)

    def park(self, connection: Upstream) -> None:
        self.parked.append(connection)

    def forget(self, connection: Upstream) -> None:
        pass


@dataclass
class Heard:
    """What a receiver was told, in the order it was told."""

    body: bytes = b""
    completes: int = 0
    error: UpstreamError | None = None
    stale: bool = False
    calls: int = 0

    def received(self, chunk: bytes, complete: bool) -> None:
        assert not self.completes
        assert self.error is None
        self.calls += 1
        self.body += chunk
        self.completes += complete

    def lost(self, error: UpstreamError, *, stale: bool) -> None:
        assert not self.completes
        assert self.error is None
        self.error, self.stale = error, stale


@dataclass
class Outcome:
    """All that can be seen of one answer."""

    status: int
    reason: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes
    complete: bool
    trailers: list[tuple[bytes, bytes]]
    error: type[UpstreamError] | None
    kept: bool


def play(parts: list[bytes], *, bodiless: bool = False, closes: bool = True) -> Outcome:
    """Feeds an answer in parts, then the end of the connection."""

    async def run() -> Outcome:
        home, heard, line = Home(), Heard(), Line()
        connection = Upstream(home)
        connection.connection_made(line)
        connection.send(heard, (b"GET / HTTP/1.1\r\n\r\n",), bodiless=bodiless)
        for part in parts:
            if line.closed:
                break
            connection.data_received(part)
        kept = bool(home.parked) and not line.closed
        status, reason = connection.status, connection.reason
        headers, trailers = connection.headers.lines, list(connection.trailers)
        if closes:
            connection.connection_lost(None)
        return Outcome(
            status,
            reason,
            headers if heard.calls else [],
            heard.body,
            bool(heard.completes),
            trailers if heard.completes else [],
            None if heard.error is None else type(heard.error),
            kept,
        )

    return asyncio.run(run())


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


token = st.from_regex(rb"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True)
value = st.from_regex(rb"[!-~]([ -~]{0,8}[!-~])?", fullmatch=True)
FRAMING = (b"content-length", b"transfer-encoding", b"connection", b"upgrade", b"proxy-connection")
lines = st.lists(st.tuples(token, value), max_size=4).map(
    lambda pairs: [(n, v) for n, v in pairs if n.lower() not in FRAMING]
)
INTERIM = (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n")
cuts = st.lists(st.integers(0, 10_000), max_size=12)


@dataclass
class Answer:
    """An answer, and what a receiver must make of it."""

    data: bytes
    expected: Outcome


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    interim = b"".join(
        draw(
            st.lists(
                st.sampled_from(
                    [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"]
                ),
                max_size=2,
            )
        )
    )
    status = draw(st.sampled_from([200, 201, 204, 400, 404, 429, 500, 503]))
    reason = draw(st.sampled_from([b"OK", b"Too Bad", b""]))
    headers = draw(lines)
    body = draw(st.binary(max_size=60))
    trailers: list[tuple[bytes, bytes]] = []
    framing = "none" if status == 204 else draw(st.sampled_from(["length", "chunked", "close"]))
    if framing == "length":
        headers = [*headers, (b"Content-Length", b"%d" % len(body))]
        payload = body
    elif framing == "chunked":
        headers = [*headers, (b"Transfer-Encoding", b"chunked")]
        trailers = draw(lines)
        pieces = split(body, draw(cuts))
        payload = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        payload += b"0\r\n" + b"".join(b"%b: %b\r\n" % line for line in trailers) + b"\r\n"
    elif framing == "close":
        payload = body
    else:
        body = payload = b""
    head = b"".join(b"%b: %b\r\n" % line for line in headers)
    data = interim + b"HTTP/1.1 %d %b\r\n" % (status, reason) + head + b"\r\n" + payload
    kept = framing != "close"
    return Answer(data, Outcome(status, reason, headers, body, True, trailers, None, kept))


@settings(deadline=None, max_examples=100)
@given(answers(), cuts)
def test_any_split_of_an_answer_gives_that_answer(answer: Answer, where: list[int]) -> None:
    assert play(split(answer.data, where)) == answer.expected


def test_a_connection_with_the_first_byte_of_an_unasked_answer_is_not_kept() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    assert play([answer]).kept
    assert not play([answer + b"H"]).kept


@settings(deadline=None, max_examples=200)
@given(answers(), st.binary(min_size=1, max_size=40).filter(lambda b: b.strip(b"\r\n")), cuts)
def test_what_follows_an_answer_belongs_to_nobody(
    answer: Answer, surplus: bytes, where: list[int]
) -> None:
    if not answer.expected.kept:
        return  # ends with the connection: nothing can follow it
    # Empty lines do no harm. But a worker that speaks without being asked is not trusted again.
    outcome = play([*split(answer.data, where)[:-1], split(answer.data, where)[-1] + surplus])
    answer.expected.kept = False
    assert outcome == answer.expected


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=80), answers(), st.integers(0, 200), cuts)
def test_any_split_of_garbage_gives_the_same_end(
    garbage: bytes, answer: Answer, at: int, where: list[int]
) -> None:
    data = answer.data[: at % len(answer.data)] + garbage
    whole = play([data]) if data else play([])
    parts = play(split(data, where))
    assert (parts.complete, parts.error, parts.status) == (
        whole.complete,
        whole.error,
        whole.status,
    )
    assert parts.body == whole.body


@settings(deadline=None, max_examples=100)
@given(answers(), st.integers(0, 10_000), cuts)
def test_an_answer_cut_short_is_lost(answer: Answer, at: int, where: list[int]) -> None:
    if not answer.expected.kept:
        return
    data = answer.data[: at % len(answer.data)]
    outcome = play(split(data, where))
    assert (outcome.complete, outcome.error) == (False, WorkerResetError)


def test_an_answer_to_head_ends_with_its_head() -> None:
    outcome = play([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"], bodiless=True)
    assert (outcome.complete, outcome.body, outcome.error) == (True, b"", None)


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000,
    ],
)
def test_what_is_not_an_answer_is_a_protocol_error(data: bytes) -> None:
    assert play(split(data, list(range(0, len(data), 70_000)))).error is ProtocolError


async def test_an_answer_that_comes_before_the_request_is_sent_spoils_the_connection() -> None:
    home, heard, line = Home(), Heard(), Line()
    connection = Upstream(home)
    connection.connection_made(line)
    connection.send(heard, (b"head", b"a long body"), bodiless=False)
    line.unsent = 5
    connection.data_received(b"HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno")
    assert (heard.body, heard.completes, home.parked, line.closed) == (b"no", 1, [], True)


async def test_only_a_reused_connection_that_said_nothing_is_stale() -> None:
    async def lose(*, reused: bool, said: bytes) -> bool:
        home, heard = Home(), Heard()
        connection = Upstream(home)
        connection.connection_made(Line())
        if reused:
            connection.send(Heard(), (b"head",), bodiless=False)
            connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        connection.send(heard, (b"head",), bodiless=False)
        if said:
            connection.data_received(said)
        connection.connection_lost(cast(Exception, ConnectionResetError()))
        return heard.stale

    assert await lose(reused=True, said=b"")
    assert not await lose(reused=False, said=b"")
    assert not await lose(reused=True, said=b"HTTP/1.1 2")
