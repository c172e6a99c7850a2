"""A small Docker image made from this machine's own programs: no registry, no builder, no network.

Each program is taken with the shared libraries that `ldd` names, so the shell in the container is
a real bash. The result is a `docker save` archive with one layer, which every engine loads.
"""

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["image_archive"]

PROGRAMS = ("bash", "cat", "echo", "env", "ls", "mkdir", "rm", "sed", "sleep", "true")
FOLDERS = ("etc", "proc", "sys", "dev", "tmp", "root", "desk")


def image_archive(tag: str, label: str) -> bytes:
    """The archive of an image with this tag, label (`name=value`), and `PROGRAMS` under /bin."""
    layer = _tar(_layer())
    name, _, value = label.partition("=")
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": _architecture(),
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Env": ["PATH=/bin", "HOME=/root"], "Labels": {name: value}},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "thunder-router tests"}],
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    layer_name = f"{digest}/layer.tar"
    manifest = [{"Config": config_name, "RepoTags": [tag], "Layers": [layer_name]}]
    files = {layer_name: layer, config_name: config, "manifest.json": json.dumps(manifest).encode()}
    return _tar((_file(name), content) for name, content in files.items())


def _layer() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for folder in FOLDERS:
        entry = _file(folder)
        entry.type = tarfile.DIRTYPE
        entry.mode = 0o1777 if folder == "tmp" else 0o755
        yield entry, b""
    yield _file("etc/passwd"), b"root:x:0:0:root:/root:/bin/bash\n"
    libraries: set[Path] = set()
    for program in PROGRAMS:
        found = shutil.which(program)
        if found is None:
            raise FileNotFoundError(f"{program} is missing on this machine")
        yield _file(f"bin/{program}"), Path(found).read_bytes()
        libraries.update(_libraries(Path(found)))
    shell = _file("bin/sh")
    shell.type, shell.linkname = tarfile.SYMTYPE, "bash"
    yield shell, b""
    for library in sorted(libraries):
        yield _file(str(library).lstrip("/")), library.read_bytes()


def _libraries(program: Path) -> Iterator[Path]:
    """Where the dynamic loader will look for each: the paths as `ldd` prints them."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return (Path(path) for path in re.findall(r"(/\S+) \(0x", said))


def _file(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode = 0o755
    return entry


def _tar(files: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for entry, content in files:
            if entry.isreg():
                entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _architecture() -> str:
    machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine.strip(), machine.strip())
