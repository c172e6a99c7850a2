"""The systems that are measured: how each is obtained and started in front of the same workers.

Peers live in virtual environments of their own under `bench/.cache`, made on first use; nothing of
theirs is ever imported here. nginx is the machine's. A system that cannot be had is left out, and
the report says so.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import console_script

__all__ = [
    "CACHE",
    "METRICS_PORT_OFFSET",
    "SGLANG_ROUTER",
    "SYSTEMS",
    "System",
    "UnavailableError",
    "virtual_environment",
]

HERE = Path(__file__).parent
CACHE = HERE / ".cache"
SGLANG_ROUTER = "sglang-router==0.3.2"
METRICS_PORT_OFFSET = 1000


class UnavailableError(Exception):
    """This machine lacks the system; the message says what to do about it."""


Command = Callable[[int, Sequence[str], Path], list[str]]


@dataclass(frozen=True)
class System:
    """One router in front of the workers, or none.

    `command` takes the port to serve on, the workers' URLs and a scratch folder, and obtains the
    system first where that is needed; None: the load goes straight to one worker.
    """

    name: str
    command: Command | None


def _thunder_router(policy: str) -> Command:
    def command(port: int, workers: Sequence[str], scratch: Path) -> list[str]:
        del scratch
        return [
            *(console_script("thunder-router"), "serve"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--policy", policy, "--log-level", "warning"),
            *("--worker-urls", *workers),
        ]

    return command


def _sglang_router(policy: str) -> Command:
    def command(port: int, workers: Sequence[str], scratch: Path) -> list[str]:
        del scratch
        python = virtual_environment(SGLANG_ROUTER)
        return [
            *(str(python), "-m", "sglang_router.launch_router"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--policy", policy, "--log-level", "warn", "--worker-startup-check-interval", "1"),
            *("--prometheus-host", "127.0.0.1"),
            *("--prometheus-port", str(port + METRICS_PORT_OFFSET)),
            *("--worker-urls", *workers),
        ]

    return command


def _nginx(port: int, workers: Sequence[str], scratch: Path) -> list[str]:
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        raise UnavailableError("nginx is missing: apt-get install nginx-light")
    servers = "\n    ".join(f"server {url.removeprefix('http://')};" for url in workers)
    text = (HERE / "nginx.conf").read_text()
    for mark, value in (("FOLDER", str(scratch)), ("PORT", str(port)), ("SERVERS", servers)):
        text = text.replace(f"@{mark}@", value)
    configuration = scratch / "nginx.conf"
    configuration.write_text(text)
    return [program, "-p", str(scratch), "-c", str(configuration)]


def virtual_environment(*requirements: str) -> Path:
    """The interpreter of an environment that holds just these requirements.

    Raises:
        UnavailableError: they could not be installed.
    """
    folder = CACHE / "-".join(requirements).replace("==", "-")
    python = folder / "bin" / "python"
    installed = folder / ".installed"
    if installed.exists():
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *requirements], check=True)
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"pip could not install {', '.join(requirements)}") from error
    installed.touch()
    return python


SYSTEMS = {
    system.name: system
    for system in (
        System("direct", None),
        System("nginx", _nginx),
        System("thunder-router adaptive", _thunder_router("adaptive")),
        System("thunder-router off", _thunder_router("off")),
        System("sglang-router round_robin", _sglang_router("round_robin")),
        System("sglang-router cache_aware", _sglang_router("cache_aware")),
    )
}
