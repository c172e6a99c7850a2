"""What goes through the relay comes out the same, both ways."""

import gzip

from faulty_worker import FaultyWorker, Seen, Wire, chunk, event, plain, sse_head
from relay_rig import ASKED, BODY, CHAT, STREAM, relay


async def test_a_body_reaches_the_worker_byte_for_byte() -> None:
    odd = (
        b'{ "model":"m" ,\t"messages":[ {"role":"user","content":"\\u00e9\xc3\xa9"} ], "x": 1e2 }\n'
    )
    async with FaultyWorker() as worker, relay(worker) as rig:
        reply = await rig.ask(odd)
    assert (reply.status, reply.body) == (200, b'{"ok": true}')
    assert worker.seen[0].body == odd


async def test_router_only_fields_are_cut_and_nothing_else() -> None:
    body = b'{"model":"m","program_id":"p","messages":[], "zzz":  null}'
    async with FaultyWorker() as worker, relay(worker) as rig:
        await rig.ask(body)
    assert worker.seen[0].body == b'{"model":"m","messages":[], "zzz":  null}'
    assert worker.seen[0].header(b"content-length") == b"%d" % len(worker.seen[0].body)


async def test_end_to_end_headers_keep_their_case_order_and_repeats() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        await rig.ask(
            BODY,
            CHAT,
            b"X-B: 1",
            b"x-a: 2",
            b"X-B: 3",
            b"Authorization: Bearer k",
            b"TraceParent: 00-aa-bb-01",
            b"X-Request-Id: mine",
        )
        host = rig.yard.endpoints[0].host_header
    assert worker.seen[0].headers == [
        (b"Host", host),
        (b"X-B", b"1"),
        (b"x-a", b"2"),
        (b"X-B", b"3"),
        (b"Authorization", b"Bearer k"),
        (b"TraceParent", b"00-aa-bb-01"),
        (b"X-Request-Id", b"mine"),
        (b"Content-Length", b"%d" % len(BODY)),
    ]


async def test_hop_by_hop_request_headers_end_here() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        await rig.ask(
            BODY,
            CHAT,
            b"Connection: keep-alive, X-Listed",
            b"X-Listed: 1",
            b"Keep-Alive: timeout=5",
            b"TE: trailers",
            b"Proxy-Authorization: Basic x",
            b"X-Kept: 1",
        )
    names = [name for name, _ in worker.seen[0].headers]
    assert names == [b"Host", b"X-Kept", b"X-Request-Id", b"Content-Length"]


async def test_the_workers_headers_keep_their_case_order_and_repeats() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        lines = (
            b"Set-Cookie: a",
            b"X-Odd: 1",
            b"Set-Cookie: b",
            b"Connection: X-Gone",
            b"X-Gone: 1",
        )
        await wire.send(plain(headers=lines))

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        reply = await rig.ask(BODY, CHAT, b"X-Request-Id: mine")
    assert reply.headers == [
        (b"content-type", b"application/json"),
        (b"Set-Cookie", b"a"),
        (b"X-Odd", b"1"),
        (b"Set-Cookie", b"b"),
        (b"content-length", b"12"),
        (b"x-request-id", b"mine"),
    ]


async def test_a_status_and_its_phrase_pass_through() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(plain(b"{}", b"418 Short And Stout"))

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        reply = await rig.ask()
        await rig.desk.ended()
    assert reply.head.startswith(b"HTTP/1.1 418 Short And Stout\r\n")
    assert rig.desk.stories == [["failed"]]


async def test_a_stream_passes_through_and_its_usage_is_counted() -> None:
    usage = b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}'

    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(sse_head(b"X-Mark: 1") + event(b'{"choices":[{"delta":{"content":"a"}}]}'))
        await wire.send(event(usage) + event(b"[DONE]") + b"0\r\n\r\n")

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        reply = await rig.ask(ASKED)
        await rig.desk.ended()
    assert worker.seen[0].body == ASKED
    assert reply.header(b"x-mark") == b"1"
    assert reply.body == (
        b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: ' + usage + b"\n\ndata: [DONE]\n\n"
    )
    result = rig.desk.tickets[0].result
    assert (result["prompt_tokens"], result["completion_tokens"]) == (9, 2)


async def test_usage_nobody_asked_for_is_asked_of_the_worker_and_kept_from_the_client() -> None:
    usage = b'{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}'

    async def script(seen: Seen, wire: Wire) -> None:
        assert b'"include_usage"' in seen.body
        await wire.send(sse_head() + event(b'{"choices":[{"delta":{"content":"a"}}]}'))
        await wire.send(event(usage) + event(b"[DONE]") + b"0\r\n\r\n")

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        reply = await rig.ask(STREAM)
        await rig.desk.ended()
    assert reply.body == b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n'
    assert rig.desk.tickets[0].result["prompt_tokens"] == 9


async def test_a_compressed_answer_is_passed_on_unread() -> None:
    packed = gzip.compress(b'{"usage": {"prompt_tokens": 9}}')

    async def script(seen: Seen, wire: Wire) -> None:
        await wire.send(plain(packed, headers=(b"content-encoding: gzip",)))

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        reply = await rig.ask()
        await rig.desk.ended()
    assert (reply.header(b"content-encoding"), reply.body) == (b"gzip", packed)
    assert rig.desk.tickets[0].result["prompt_tokens"] is None


async def test_trailers_of_an_answer_pass_through() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
        await wire.send(head + chunk(b"{}") + b"0\r\nX-Sum: 7\r\n\r\n")

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        reply = await rig.ask()
    assert (reply.header(b"trailer"), reply.trailers) == (b"X-Sum", b"X-Sum: 7\r\n")


async def test_a_prefix_of_the_workers_url_stands_before_every_path() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        rig.yard.change(0, prefix=b"/engine")
        await rig.ask(BODY, CHAT + b"?a=%2F")
    assert worker.seen[0].target == b"/engine/v1/chat/completions?a=%2F"


async def test_an_allowed_path_is_handed_on_unread() -> None:
    async with FaultyWorker() as worker, relay(worker) as rig:
        await rig.ask(b"not json", b"/v1/embeddings")
    assert (worker.seen[0].target, worker.seen[0].body) == (b"/v1/embeddings", b"not json")
    assert rig.desk.tickets[0].arrival.dialect is None


async def test_head_of_an_allowed_path_has_a_length_and_no_body() -> None:
    async def script(seen: Seen, wire: Wire) -> None:
        body = b"" if seen.line.startswith(b"HEAD") else b"12345"
        await wire.send(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n" + body)

    async with FaultyWorker(script) as worker, relay(worker) as rig:
        client = await rig.client()
        client.send(b"HEAD /tokenize HTTP/1.1\r\nHost: r\r\n\r\n")
        reply = await client.reply(bodiless=True)
        assert reply.header(b"content-length") == b"5"
        assert (await client.ask()).body == b"12345"
