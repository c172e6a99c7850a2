"""Images without a registry and without a builder: `docker load` takes what this writes.

Exact layers and fixed digests, so that a test can say to the byte what an eviction frees. The tools
inside are this machine's own, with the libraries they need.
"""

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

MIB = 1 << 20
TOOLS = ("sh", "bash", "sleep", "cat", "true", "false", "mkdir", "touch", "ls", "rm", "dd", "sync")


@dataclass(frozen=True)
class Recipe:
    """An image: its tag, its layers from the bottom, and what its config says."""

    tag: str
    layers: Sequence[bytes]
    config: Mapping[str, object] = field(default_factory=dict)


def layer(files: Mapping[str, bytes | str], mode: int = 0o755) -> bytes:
    """A layer; a `str` is the target of a symbolic link, a name that ends in / a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.mode = mode
            content = files[name]
            if name.endswith("/"):
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
            elif isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


@cache
def tools() -> bytes:
    """A layer with a shell and what else an agent's sandbox needs."""
    files: dict[str, bytes | str] = {f"{name}/": b"" for name in ("bin", "tmp", "etc", "testbed")}
    files["etc/passwd"] = b"root:x:0:0:root:/root:/bin/sh\n"
    for tool in TOOLS:
        path = Path(shutil.which(tool) or "").resolve()
        files[f"bin/{tool}"] = path.read_bytes()
        linked = subprocess.run(["ldd", path], check=False, capture_output=True, text=True).stdout
        for library in re.findall(r"(/\S+)", linked):
            files[library.lstrip("/")] = Path(library).resolve().read_bytes()
    return layer(files)


def filler(name: str, size: int) -> bytes:
    """A layer of one file of incompressible bytes that depend on its name."""
    block = hashlib.shake_128(name.encode()).digest(min(size, MIB))
    return layer({f"opt/{name}.bin": (block * -(-size // len(block)))[:size]})


def archive(recipes: Sequence[Recipe]) -> bytes:
    """What `docker save` would have written."""
    out, manifest, seen = io.BytesIO(), [], set()
    with tarfile.open(fileobj=out, mode="w") as tar:

        def add(name: str, content: bytes) -> None:
            if name not in seen:
                seen.add(name)
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))

        for recipe in recipes:
            digests = [hashlib.sha256(content).hexdigest() for content in recipe.layers]
            for digest, content in zip(digests, recipe.layers, strict=True):
                add(f"{digest}/layer.tar", content)
            config = {
                "architecture": "amd64",
                "os": "linux",
                "created": "1970-01-01T00:00:00Z",
                "config": {"Cmd": ["sleep", "infinity"], "Env": ["PATH=/bin"], **recipe.config},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{d}" for d in digests]},
                "history": [{"created_by": f"layer {n}"} for n in range(len(digests))],
            }
            written = json.dumps(config, sort_keys=True).encode()
            name = f"{hashlib.sha256(written).hexdigest()}.json"
            add(name, written)
            manifest.append(
                {
                    "Config": name,
                    "RepoTags": [recipe.tag],
                    "Layers": [f"{digest}/layer.tar" for digest in digests],
                }
            )
        add("manifest.json", json.dumps(manifest).encode())
    return out.getvalue()
