"""Workers in Kubernetes, against a server that lists EndpointSlices as the API reference has them.

The slices are written by hand after the reference, not recorded from a cluster.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from thunder_router.config import WorkerSettings
from thunder_router.errors import ConfigError
from thunder_router.workers.discovery import RosterError
from thunder_router.workers.kubernetes import KubernetesRoster, connect, endpoint_urls

SLICES = Path(__file__).parent / "kubernetes" / "endpointslices.json"


def slices() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(SLICES.read_text())["items"]
    return found


class ApiServer:
    """Lists the slices, two a page, to whoever has the token."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.status = 200
        self.items = slices()

    async def list(self, request: web.Request) -> web.Response:
        self.asked.append(dict(request.query))
        if request.headers.get("Authorization") != "Bearer token-1":
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        if self.status != 200:
            return web.json_response({"kind": "Status", "code": self.status}, status=self.status)
        begin = int(request.query.get("continue", "0"))
        page = {
            "kind": "EndpointSliceList",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"resourceVersion": "4711"},
            "items": self.items[begin : begin + 2],
        }
        if begin + 2 < len(self.items):
            page["metadata"]["continue"] = str(begin + 2)  # type: ignore[index]
        return web.json_response(page)


@pytest.fixture
async def served() -> AsyncIterator[tuple[ApiServer, KubernetesRoster]]:
    server = ApiServer()
    app = web.Application()
    app.router.add_get("/apis/discovery.k8s.io/v1/namespaces/llm/endpointslices", server.list)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    access = Configuration(host=f"http://{host}:{port}")
    access.api_key["BearerToken"] = "Bearer token-1"
    roster = KubernetesRoster(
        access, namespace="llm", selector="kubernetes.io/service-name=sglang", port="http"
    )
    yield server, roster
    await runner.cleanup()


async def test_the_endpoints_of_all_pages_are_workers(
    served: tuple[ApiServer, KubernetesRoster],
) -> None:
    server, roster = served
    urls = [entry.url for entry in await roster.entries()]
    assert urls == ["http://10.244.1.7:30000", "http://10.244.2.9:30000", "http://[fd00::5]:30000"]
    assert [query.get("continue") for query in server.asked] == [None, "2"]
    assert {query["labelSelector"] for query in server.asked} == {
        "kubernetes.io/service-name=sglang"
    }


async def test_an_empty_list_is_an_empty_roster(served: tuple[ApiServer, KubernetesRoster]) -> None:
    server, roster = served
    server.items = []
    assert await roster.entries() == []


@pytest.mark.parametrize("status", [403, 410, 500])
async def test_an_api_server_that_refuses_is_no_empty_roster(
    served: tuple[ApiServer, KubernetesRoster], status: int
) -> None:
    server, roster = served
    server.status = status
    with pytest.raises(RosterError, match=str(status)):
        await roster.entries()


async def test_an_api_server_that_is_away_is_no_empty_roster() -> None:
    away = KubernetesRoster(
        Configuration(host="http://127.0.0.1:1"), namespace="llm", selector="a=b", port=None
    )
    with pytest.raises(RosterError, match="cannot be asked"):
        await away.entries()


def test_an_endpoint_that_is_not_ready_stays_and_a_terminating_one_goes() -> None:
    urls = endpoint_urls(slices(), "http")
    assert "http://10.244.2.9:30000" in urls  # ready: false
    assert not [url for url in urls if "10.244.3.3" in url]  # terminating: true


def test_a_dual_stack_pod_is_one_worker() -> None:
    urls = endpoint_urls(slices(), "http")
    assert not [url for url in urls if "fd00::7" in url]


@pytest.mark.parametrize(
    ("port", "urls"),
    [
        ("31000", ["http://10.244.1.7:31000"]),
        ("metrics", ["http://10.244.1.7:29000"]),
        ("nonsense", []),
        (None, []),
    ],
)
def test_a_port_is_chosen_by_number_or_name_and_never_guessed(
    port: str | None, urls: list[str]
) -> None:
    two_ports = slices()[0]
    two_ports["endpoints"] = two_ports["endpoints"][:1]
    assert endpoint_urls([two_ports], port) == urls


def test_what_cannot_be_read_is_left_out() -> None:
    odd: list[dict[str, Any]] = [
        {}, {"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}]},
        {"addressType": "IPv4", "ports": 3, "endpoints": [None, {"addresses": []}, {}]},
        {"addressType": "IPv4", "ports": [{"port": 1}], "endpoints": [{"addresses": [7]}]},
    ]  # fmt: skip
    assert endpoint_urls([*odd, *slices()], "http") == endpoint_urls(slices(), "http")


async def test_without_a_cluster_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no Kubernetes cluster"):
        await connect(WorkerSettings(kubernetes_selector="a=b"), tmp_path / "none")
    with pytest.raises(ConfigError, match="kubernetes_selector"):
        await connect(WorkerSettings())


async def test_a_kubeconfig_says_where_the_cluster_is(tmp_path: Path) -> None:
    file = tmp_path / "config"
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
    }  # fmt: skip
    file.write_text(json.dumps(config))
    settings = WorkerSettings.model_validate(
        {"kubernetes_selector": "a=b", "kubernetes_namespace": "llm", "kubernetes_port": 30000}
    )
    roster = await connect(settings, file)
    assert roster.name == "kubernetes:llm/a=b"
    with pytest.raises(RosterError, match="cannot be asked"):
        await roster.entries()
