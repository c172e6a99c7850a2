"""Docker's JSON, read into our records and written from them. No I/O.

Source: Docker Engine API 1.41 (`ContainerSummary`, `ContainerInspect`, `Network`, `Volume`,
`ImageInspect`, `HistoryResponseItem`), as Docker 20.10.24 answers it.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from thunder_router.environments.engine import EngineEvent, Layer
from thunder_router.environments.records import Kind, Sighting, Spec

__all__ = [
    "container_config",
    "engine_event",
    "layers",
    "network",
    "seen_container",
    "shown_container",
    "unix_ms",
    "volume",
]

Json = Mapping[str, Any]

_FRACTION: Final = re.compile(r"\.(\d+)")
_END_OF_SECOND_MS: Final = 999


def unix_ms(text: str) -> int:
    """Milliseconds of an RFC 3339 time; without a fraction, the end of that second."""
    fraction = _FRACTION.search(text)
    whole = datetime.fromisoformat(_FRACTION.sub("", text).replace("Z", "+00:00"))
    millis = int(fraction[1].ljust(3, "0")[:3]) if fraction else _END_OF_SECOND_MS
    return int(whole.timestamp()) * 1000 + millis


def _addresses(settings: Json) -> tuple[str, ...]:
    networks = (settings.get("Networks") or {}).values()
    return tuple(n["IPAddress"] for n in networks if n and n.get("IPAddress"))


def seen_container(item: Json) -> Sighting:
    """A container as a listing shows it: born at some time in a second, policy unknown."""
    return Sighting(
        Kind.CONTAINER,
        item["Id"],
        item.get("Labels") or {},
        int(item["Created"]) * 1000 + _END_OF_SECOND_MS,
        name=next((name.lstrip("/") for name in item.get("Names") or ()), ""),
        image_id=item.get("ImageID", ""),
        addresses=_addresses(item.get("NetworkSettings") or {}),
        running=item.get("State") in ("running", "paused"),
    )


def shown_container(item: Json) -> Sighting:
    """A container as inspection shows it."""
    policy = ((item.get("HostConfig") or {}).get("RestartPolicy") or {}).get("Name") or "no"
    settings = item.get("NetworkSettings") or {}
    ports = tuple(
        (int(inside.partition("/")[0]), int(bindings[0]["HostPort"]))
        for inside, bindings in sorted((settings.get("Ports") or {}).items())
        if bindings
    )
    return Sighting(
        Kind.CONTAINER,
        item["Id"],
        (item.get("Config") or {}).get("Labels") or {},
        unix_ms(item["Created"]),
        name=item.get("Name", "").lstrip("/"),
        image_id=item.get("Image", ""),
        addresses=_addresses(settings),
        restarts=policy != "no",
        running=bool((item.get("State") or {}).get("Running")),
        ports=ports,
    )


def network(item: Json) -> Sighting:
    """A network, listed or inspected."""
    born_ms = unix_ms(item["Created"])
    return Sighting(Kind.NETWORK, item["Id"], item.get("Labels") or {}, born_ms, name=item["Name"])


def volume(item: Json) -> Sighting:
    """A volume, listed or inspected."""
    return Sighting(
        Kind.VOLUME,
        item["Name"],
        item.get("Labels") or {},
        unix_ms(item["CreatedAt"]),
        name=item["Name"],
    )


def engine_event(item: Json) -> EngineEvent:
    """One line of `/events`."""
    actor = item.get("Actor") or {}
    return EngineEvent(
        item.get("Type", ""),
        item.get("Action", ""),
        actor.get("ID", ""),
        actor.get("Attributes") or {},
        int(item.get("timeNano", 0)) // 1_000_000,
    )


def layers(diff_ids: Sequence[str], history: Sequence[Json], size: int) -> tuple[Layer, ...]:
    """The image's layers from the bottom, named by what they share disk with.

    Docker stores a layer once per chain id, the digest of everything from the bottom up to it. Its
    history has an entry of size 0 for steps without a layer; where entries and layers cannot be
    matched even so, the whole size is put down to the top layer.

    Source: OCI image specification 1.0, config.md, "Layer ChainID".
    """
    sizes = [int(entry.get("Size", 0)) for entry in reversed(history)]
    if len(sizes) != len(diff_ids):
        sizes = [size for size in sizes if size]
    if len(sizes) != len(diff_ids):
        sizes = [0] * (len(diff_ids) - 1) + [size] * bool(diff_ids)
    chain, result = "", []
    for diff_id, size_bytes in zip(diff_ids, sizes, strict=True):
        pair = f"{chain} {diff_id}".encode()
        chain = f"sha256:{hashlib.sha256(pair).hexdigest()}" if chain else diff_id
        result.append(Layer(chain, size_bytes))
    return tuple(result)


def container_config(spec: Spec, labels: Mapping[str, str]) -> dict[str, Any]:
    """What `POST /containers/create` is asked for.

    No host mounts, no added capabilities, no devices, no host namespaces, and ports only on the
    loopback address at numbers that the engine picks.
    """
    ports = {f"{port}/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}] for port in spec.ports}
    return {
        "Image": spec.image,
        "Cmd": list(spec.command),
        "Env": [f"{name}={value}" for name, value in spec.env],
        "WorkingDir": spec.workdir,
        "Labels": dict(labels),
        "ExposedPorts": {port: {} for port in ports},
        "HostConfig": {
            "Init": True,
            "NetworkMode": spec.network,
            "PortBindings": ports,
            "Memory": spec.memory_bytes,
            "PidsLimit": spec.pids,
            "NanoCpus": round(spec.cpus * 1e9),
            "SecurityOpt": ["no-new-privileges"],
        },
    }
