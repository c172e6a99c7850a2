"""What an image weighs before it is pulled, as its registry says.

One anonymous question, for admission only: a registry that wants credentials, is not there, or
answers strangely says nothing, and then only the disk's reserve guards the pull.

Source: OCI distribution specification 1.0, "Pulling manifests"; Docker image manifest V2 schema 2.
"""

import asyncio
from typing import Any, Final

import aiohttp

__all__ = ["compressed_bytes", "located"]

_TYPES: Final = ", ".join(
    (
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_LIMIT_S: Final = 5.0


def located(ref: str) -> tuple[str, str, str] | None:
    """Registry host, repository and tag or digest; None where the reference names no registry."""
    host, slash, rest = ref.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        return None
    if "@" in rest:
        repository, _, version = rest.partition("@")
    else:
        repository, _, version = rest.partition(":")
    return host, repository, version or "latest"


async def compressed_bytes(ref: str) -> int | None:
    """The sum of the image's compressed layers in bytes; None: unknown."""
    place = located(ref)
    if place is None:
        return None
    host, repository, version = place
    local = host.partition(":")[0] in ("localhost", "127.0.0.1")
    url = f"{'http' if local else 'https'}://{host}/v2/{repository}/manifests/{version}"
    try:
        async with (
            asyncio.timeout(_LIMIT_S),
            aiohttp.ClientSession() as session,
            session.get(url, headers={"Accept": _TYPES}) as answer,
        ):
            if answer.status != 200:
                return None
            manifest: Any = await answer.json(content_type=None)
            return sum(int(layer["size"]) for layer in manifest.get("layers", ()))
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError, KeyError, TypeError):
        return None
