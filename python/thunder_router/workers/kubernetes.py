"""Finds workers in Kubernetes: the endpoints of the EndpointSlices that a selector names.

The slices are listed anew at every look instead of watched: one small request every few seconds,
and no event can be missed, so that an evicted pod never stays as a ghost (sglang#30270). An
endpoint that is not ready stays on the roster, since whether it serves is for its watch to find out
and a flap must not drain it (sglang#40032); one that is terminating drains.

Needs the extra `thunder-router[kubernetes]`, and the permission to list the EndpointSlices of the
namespace.

Source: Kubernetes API reference, EndpointSlice v1 discovery.k8s.io.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from thunder_router.config import WorkerEntry, WorkerSettings
from thunder_router.errors import ConfigError
from thunder_router.workers.discovery import RosterError
from thunder_router.workers.lenient import count, items, mapping, parse_json, text

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration

__all__ = ["KubernetesRoster", "connect", "endpoint_urls"]

PAGE = 250
"""Slices per answer; each holds up to a hundred endpoints."""

TIMEOUT_S = 10.0

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def endpoint_urls(slices: Iterable[Mapping[str, object]], port: str | None) -> list[str]:
    """The worker URLs in some EndpointSlices.

    A pod of a dual-stack service stands in two slices and is one worker: its IPv4 address counts.

    Args:
        slices: EndpointSlice objects; what cannot be read is left out.
        port: Number or name of the port; `None`: the only one.
    """
    found: dict[str, str] = {}
    by_family = sorted(slices, key=lambda item: str(item.get("addressType")))
    for item in by_family:
        family = item.get("addressType")
        number = _port(item, port)
        if family not in ("IPv4", "IPv6") or number is None:
            continue
        for endpoint in items(item.get("endpoints")):
            listed = endpoint.get("addresses")
            address = text(listed[0] if isinstance(listed, list) and listed else None)
            if address is None or mapping(endpoint.get("conditions")).get("terminating") is True:
                continue
            pod = text(mapping(endpoint.get("targetRef")).get("uid")) or address
            host = f"[{address}]" if family == "IPv6" else address
            found.setdefault(pod, f"http://{host}:{number}")
    return sorted(found.values())


def _port(item: Mapping[str, object], port: str | None) -> int | None:
    if port is not None and port.isdecimal():
        return int(port)
    ports = [p for p in items(item.get("ports")) if p.get("protocol", "TCP") == "TCP"]
    fitting = [p for p in ports if port is None or p.get("name") == port]
    return count(fitting[0].get("port")) or None if len(fitting) == 1 else None


class KubernetesRoster:
    """The endpoints that a selector names, as the API server has them now."""

    def __init__(
        self, server: "Configuration", *, namespace: str, selector: str, port: str | None
    ) -> None:
        self._server = server
        self._namespace = namespace
        self._selector = selector
        self._port = port

    @property
    def name(self) -> str:
        """Namespace and selector."""
        return f"kubernetes:{self._namespace}/{self._selector}"

    async def entries(self) -> list[WorkerEntry]:
        """A worker for each endpoint that is not about to go."""
        slices = await self._list()
        return [WorkerEntry(url=url) for url in endpoint_urls(slices, self._port)]

    async def _list(self) -> list[Mapping[str, object]]:
        import aiohttp
        from kubernetes_asyncio.client import ApiClient, DiscoveryV1Api

        slices: list[Mapping[str, object]] = []
        rest: dict[str, str] = {}
        try:
            async with ApiClient(self._server) as client:
                api = DiscoveryV1Api(client)
                while True:
                    answer = await api.list_namespaced_endpoint_slice(
                        self._namespace,
                        label_selector=self._selector,
                        limit=PAGE,
                        _preload_content=False,
                        _request_timeout=TIMEOUT_S,
                        **rest,
                    )
                    body = await answer.read()
                    if answer.status != 200:
                        raise RosterError(f"the API server answers {answer.status}")
                    page = mapping(parse_json(body))
                    if not isinstance(page.get("items"), list):
                        raise RosterError("the API server answers no EndpointSliceList")
                    slices += items(page["items"])
                    more = text(mapping(page.get("metadata")).get("continue"))
                    if more is None:
                        return slices
                    rest = {"_continue": more}
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise RosterError(f"the API server cannot be asked ({type(error).__name__})") from None


async def connect(settings: WorkerSettings, kubeconfig: Path | None = None) -> KubernetesRoster:
    """The roster that the settings name: in a pod by its service account, else by `kubeconfig`.

    Args:
        settings: What to look for.
        kubeconfig: Where the cluster is described; `None`: where kubectl looks.

    Raises:
        ConfigError: there is no selector, no cluster to be found, or the extra is not installed.
    """
    if settings.kubernetes_selector is None:
        raise ConfigError("workers.kubernetes_selector is not set")
    try:
        from kubernetes_asyncio import client, config
    except ImportError:
        raise ConfigError("Kubernetes discovery needs thunder-router[kubernetes]") from None
    server = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=server)
    except config.ConfigException:
        try:
            file = None if kubeconfig is None else str(kubeconfig)
            await config.load_kube_config(config_file=file, client_configuration=server)
        except (config.ConfigException, OSError) as error:
            raise ConfigError(f"no Kubernetes cluster to be found: {error}") from None
    return KubernetesRoster(
        server,
        namespace=settings.kubernetes_namespace or _own_namespace(),
        selector=settings.kubernetes_selector,
        port=settings.kubernetes_port,
    )


def _own_namespace() -> str:
    """The namespace of the pod that we run in; `default` outside of one."""
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.is_file() else "default"
