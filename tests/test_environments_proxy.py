"""The Docker proxy: what it stamps, what it refuses, and that nothing hides in anything."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from thunder_router.environments import docker_proxy, labels
from thunder_router.environments.proxy_policy import Allowed, Refused, judged, target

STAMP = {labels.PROGRAM: "p1", labels.ROUTER: "mine"}


def create(**host: object) -> Allowed | Refused:
    body = json.dumps({"Image": "i", "HostConfig": host}).encode()
    return judged("POST", "/v1.41/containers/create", "", body, STAMP)


@pytest.mark.parametrize("kind", ["containers", "networks", "volumes"])
def test_everything_created_is_stamped_and_keeps_its_own_labels(kind: str) -> None:
    body = b'{"Labels": {"own": "1"}, "Name": "n"}'
    verdict = judged("POST", f"/v1.41/{kind}/create", "", body, STAMP)
    assert isinstance(verdict, Allowed)
    assert json.loads(verdict.body or b"")["Labels"] == {"own": "1", **STAMP}


@pytest.mark.parametrize(
    "host",
    [
        {"Privileged": True},
        {"CapAdd": ["SYS_ADMIN"]},
        {"Devices": [{"PathOnHost": "/dev/kvm"}]},
        {"DeviceCgroupRules": ["a *:* rwm"]},
        {"VolumesFrom": ["other"]},
        {"NetworkMode": "host"},
        {"NetworkMode": "container:other"},
        {"PidMode": "host"},
        {"IpcMode": "host"},
        {"UTSMode": "host"},
        {"UsernsMode": "host"},
        {"CgroupnsMode": "host"},
        {"SecurityOpt": ["seccomp=unconfined"]},
        {"CgroupParent": "/"},
        {"Runtime": "kata"},
        {"Binds": ["/:/host"]},
        {"Binds": ["../x:/x"]},
        {"Mounts": [{"Type": "bind", "Source": "/", "Target": "/h"}]},
        {"Mounts": [{"Type": "volume", "VolumeOptions": {"DriverConfig": {"Name": "local"}}}]},
    ],
)
def test_no_way_to_the_host(host: dict[str, object]) -> None:
    assert isinstance(create(**host), Refused)


def test_what_agents_need_is_allowed() -> None:
    verdict = create(
        NetworkMode="bridge",
        Binds=["work:/desk"],
        Mounts=[{"Type": "volume", "Source": "data", "Target": "/d"}, {"Type": "tmpfs"}],
        SecurityOpt=["no-new-privileges"],
        Memory=1,
    )
    assert isinstance(verdict, Allowed)
    assert verdict.volumes == ("data", "work")


@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    [
        ("POST", "/containers/create", "", b'{"Labels": {"thunder.program_id": "p2"}}'),
        ("POST", "/containers/create", "", b"not json"),
        ("PUT", "/containers/create", "", b"{}"),
        ("POST", "/volumes/create", "", b'{"DriverOpts": {"type": "none", "device": "/"}}'),
        ("POST", "/networks/create", "", b'{"Driver": "macvlan"}'),
        ("POST", "/v1.41/system/prune", "", b""),
        ("POST", "/containers/prune", "", b""),
        ("DELETE", "/images/x", "force=1", b""),
        ("POST", "/containers/c/exec", "", b'{"Privileged": true}'),
        ("POST", "/build", "networkmode=host", b""),
        ("POST", "/session", "", b""),
        ("POST", "/grpc", "", b""),
        ("POST", "/plugins/pull", "", b""),
        ("POST", "//containers/create", "", b""),
        ("POST", "/v1.41/../containers/create", "", b""),
    ],
)
def test_what_is_refused(method: str, path: str, query: str, body: bytes) -> None:
    assert isinstance(judged(method, path, query, body, STAMP), Refused)


@pytest.mark.parametrize(
    ("method", "path", "query", "owned"),
    [
        ("POST", "/v1.41/containers/c/kill", "", ("containers", "c")),
        ("DELETE", "/containers/c", "", ("containers", "c")),
        ("GET", "/containers/c/attach/ws", "", ("containers", "c")),
        ("GET", "/containers/c/archive", "path=/", ("containers", "c")),
        ("POST", "/networks/n/connect", "", ("networks", "n")),
        ("DELETE", "/volumes/v", "", ("volumes", "v")),
        ("POST", "/commit", "container=c", ("containers", "c")),
        ("GET", "/containers/json", "", None),
        ("GET", "/v1.41/containers/c/json", "", None),
        ("GET", "/networks", "", None),
        ("GET", "/volumes/v", "", None),
        ("POST", "/containers/create", "name=c", None),
        ("POST", "/images/create", "fromImage=x", None),
    ],
)
def test_what_must_be_the_programs_own(
    method: str, path: str, query: str, owned: tuple[str, str] | None
) -> None:
    assert target(method, path, query) == owned


class Engine:
    """Records the requests that reach it, and answers them from a table."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.objects: dict[str, dict[str, str]] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                start = head.split(b"\r\n")[0].decode()
                length = 0
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                body = await reader.readexactly(length)
                self.heard.append((start, body))
                name = start.split()[1].split("/")[2] if start.count("/") > 2 else ""
                found = self.objects.get(name)
                status = "404 Not Found" if start.startswith("GET") and found is None else "200 OK"
                answer = json.dumps({"Labels": found}).encode()
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer
                )
                await writer.drain()
                if b"HTTP/1.0" in head:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Engine]:
    engine = Engine()
    async with (
        await asyncio.start_unix_server(engine.serve, tmp_path / "engine.sock"),
        docker_proxy.serve(tmp_path / "p.sock", tmp_path / "engine.sock", "p1", "mine"),
    ):
        yield engine


async def said(folder: Path, *requests: bytes) -> bytes:
    """All that the proxy answers to these bytes."""
    reader, writer = await asyncio.open_unix_connection(folder / "p.sock")
    for request in requests:
        writer.write(request)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


def post(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def test_a_creation_reaches_the_engine_with_the_programs_label(
    engine: Engine, tmp_path: Path
) -> None:
    await said(tmp_path, post("/v1.41/volumes/create", b'{"Name": "v"}'))
    ((start, body),) = engine.heard
    assert start == "POST /v1.41/volumes/create HTTP/1.1"
    assert json.loads(body)["Labels"] == {"thunder.managed": "1", **STAMP}


async def test_a_chunked_creation_is_read_whole(engine: Engine, tmp_path: Path) -> None:
    head = b"POST /volumes/create HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    await said(tmp_path, head + b'8\r\n{"Name":\r\n5\r\n "v"}\r\n0\r\n\r\n')
    assert json.loads(engine.heard[0][1])["Name"] == "v"


async def test_another_programs_container_is_out_of_reach(engine: Engine, tmp_path: Path) -> None:
    engine.objects = {"mine": STAMP, "theirs": {labels.PROGRAM: "p2"}, "bare": {}}
    for name, status in (("theirs", b"403"), ("bare", b"403"), ("mine", b"200"), ("none", b"200")):
        answer = await said(tmp_path, post(f"/containers/{name}/kill", b""))
        assert answer.split()[1] == status
    killed = [start.split()[1] for start, _ in engine.heard if start.startswith("POST")]
    assert killed == ["/containers/mine/kill", "/containers/none/kill"]


async def test_a_named_volume_is_made_with_the_label_or_refused(
    engine: Engine, tmp_path: Path
) -> None:
    engine.objects = {"theirs": {labels.PROGRAM: "p2"}}
    for name in ("theirs", "new"):
        body = json.dumps({"HostConfig": {"Binds": [f"{name}:/x"]}}).encode()
        await said(tmp_path, post("/containers/create", body))
    posts = [(start.split()[1], json.loads(b)) for start, b in engine.heard if b]
    assert [path for path, _ in posts] == ["/volumes/create", "/containers/create"]
    assert posts[0][1]["Labels"][labels.PROGRAM] == "p1"


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /_ping HTTP/1.1\nHost: d\n\nPOST /containers/create HTTP/1.1\nA: 2\n\n{}\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /x HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: +2\r\n\r\n{}",
        b"POST /x HTTP/1.1\r\nContent-Length : 2\r\n\r\n{}",
        b"POST /x HTTP/1.1\r\nA: b\r\n Transfer-Encoding: chunked\r\n\r\n",
        b"POST /volumes/create HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n",
        b"POST /volumes/create HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n",
    ],
)
async def test_a_request_that_can_be_read_two_ways_reaches_nobody(
    engine: Engine, tmp_path: Path, request_: bytes
) -> None:
    answer = await said(tmp_path, request_)
    assert answer.split()[1] == b"400"
    assert engine.heard == []


async def test_an_engine_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    async with docker_proxy.serve(tmp_path / "p.sock", tmp_path / "none.sock", "p1", "mine"):
        assert (await said(tmp_path, b"GET /_ping HTTP/1.1\r\n\r\n")).split()[1] == b"502"
    assert not (tmp_path / "p.sock").exists()


async def test_a_proxy_for_no_program_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot own anything"):
        async with docker_proxy.serve(tmp_path / "p.sock", tmp_path / "e.sock", "default", "m"):
            pass
