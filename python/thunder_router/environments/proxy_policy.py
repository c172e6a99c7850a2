"""What an agent may ask of Docker through the proxy, and what is stamped on what it creates. Pure.

The Docker socket is root on its machine. Through the proxy an agent may create and use containers,
networks and volumes of its own; it gets no way to the host (privileges, mounts, devices, host
namespaces), none into what others run, and cannot claim a label of ours. It may list and inspect
everything, and use every image.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from thunder_router.environments.labels import PREFIX

__all__ = ["Allowed", "Refused", "Verdict", "judged", "needs_body", "target"]

_VERSIONED: Final = re.compile(r"^/v\d+\.\d+")
_CREATE: Final = re.compile(r"^/(containers|networks|volumes)/create$")
_TARGET: Final = re.compile(r"^/(containers|networks|volumes)/([^/]+)(?:/|$)")
_EXEC: Final = re.compile(r"^/containers/[^/]+/exec$")
_LOOKING: Final = re.compile(r"^/(containers/([^/]+/)?json|(networks|volumes)(/[^/]+)?)$")
_CLOSED: Final = re.compile(
    r"^/(plugins|swarm|nodes|services|tasks|secrets|configs|session|grpc)(/|$)"
)
"""Swarm and plug-ins are the host's; BuildKit's channels cannot be judged from outside."""
_SAFE_OPTIONS: Final = frozenset({"no-new-privileges", "no-new-privileges:true"})


@dataclass(frozen=True, slots=True)
class Refused:
    """Not allowed, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Allowed:
    """Allowed, with this body; None: as it came."""

    body: bytes | None = None
    volumes: tuple[str, ...] = ()
    """Named volumes that it mounts, which must be the program's, or be made so."""


Verdict = Allowed | Refused


def needs_body(method: str, path: str) -> bool:
    """Whether the verdict depends on the body."""
    bare = _VERSIONED.sub("", path)
    return method == "POST" and bool(_CREATE.match(bare) or _EXEC.match(bare))


def target(method: str, path: str, query: str) -> tuple[str, str] | None:
    """The (collection, name) that a request changes, enters or copies from; None: no such."""
    bare = _VERSIONED.sub("", path)
    if bare == "/commit":
        return "containers", parse_qs(query).get("container", [""])[0]
    found = _TARGET.match(bare)
    if found is None or _CREATE.match(bare):
        return None
    if method in ("GET", "HEAD") and _LOOKING.match(bare):
        return None
    return found[1], found[2]


def judged(method: str, path: str, query: str, body: bytes, labels: Mapping[str, str]) -> Verdict:
    """The verdict on one request.

    Args:
        method: Of HTTP.
        path: Without its query, with or without an API version.
        query: What follows the question mark.
        body: Whole where `path` creates something or starts an exec, else empty.
        labels: What to stamp on everything created.
    """
    bare = _VERSIONED.sub("", path)
    if not bare.startswith("/") or "//" in bare or "/." in bare:
        return Refused("a path that can be read two ways")
    if _CLOSED.match(bare):
        return Refused(f"{bare} is closed")
    if bare.endswith("/prune"):
        return Refused("prune removes what others own")
    if bare.startswith("/images/") and method == "DELETE" and "force" in parse_qs(query):
        return Refused("removing an image by force")
    if bare == "/build" and parse_qs(query).get("networkmode", ["default"])[0] == "host":
        return Refused("building in the host's network")
    created = _CREATE.match(bare)
    if created is None:
        return _exec(bare, body)
    if method != "POST":
        return Refused("creating is a POST")
    try:
        config = json.loads(body or b"{}")
    except ValueError:
        return Refused("the body is not JSON")
    if not isinstance(config, dict):
        return Refused("the body is not an object")
    reason = _dangers(created[1], config) or _claims(config.get("Labels"))
    if reason is not None:
        return Refused(reason)
    config["Labels"] = {**(config.get("Labels") or {}), **labels}
    return Allowed(json.dumps(config).encode(), _named_volumes(config))


def _exec(path: str, body: bytes) -> Verdict:
    if _EXEC.match(path):
        try:
            config = json.loads(body or b"{}")
        except ValueError:
            return Refused("the body is not JSON")
        if isinstance(config, dict) and config.get("Privileged"):
            return Refused("privileged")
    return Allowed()


def _named_volumes(config: Mapping[str, Any]) -> tuple[str, ...]:
    host = config.get("HostConfig") or {}
    names = [str(bind).partition(":")[0] for bind in host.get("Binds") or ()]
    names += [
        str(mount.get("Source") or "")
        for mount in host.get("Mounts") or ()
        if mount.get("Type") == "volume"
    ]
    return tuple(sorted({name for name in names if name}))


def _claims(labels: Any) -> str | None:
    names = labels if isinstance(labels, dict) else ()
    return next((f"label {n} is the router's" for n in names if str(n).startswith(PREFIX)), None)


def _dangers(kind: str, config: Mapping[str, Any]) -> str | None:
    """Why this may not be created; None: it may."""
    if kind == "volumes":
        return "a volume on a host path" if config.get("DriverOpts") else None
    if kind == "networks":
        driver = config.get("Driver") or "bridge"
        return None if driver in ("bridge", "overlay") else f"network driver {driver}"
    host = config.get("HostConfig") or {}
    for name in ("Privileged", "CapAdd", "Devices", "DeviceCgroupRules", "VolumesFrom"):
        if host.get(name):
            return name
    for name in ("NetworkMode", "PidMode", "IpcMode", "UTSMode", "UsernsMode", "CgroupnsMode"):
        mode = str(host.get(name) or "")
        if mode == "host" or mode.startswith("container:"):
            return f"{name} {mode}"
    for option in host.get("SecurityOpt") or ():
        if option not in _SAFE_OPTIONS:
            return f"SecurityOpt {option}"
    if host.get("CgroupParent") or host.get("Runtime"):
        return "CgroupParent or Runtime"
    for bind in host.get("Binds") or ():
        if str(bind).startswith(("/", ".", "~")):
            return "a host bind mount"
    for mount in host.get("Mounts") or ():
        driver = (mount.get("VolumeOptions") or {}).get("DriverConfig")
        if mount.get("Type") not in ("volume", "tmpfs") or driver:
            return "a host bind mount"
    return None
