"""A Docker engine of one's own, to kill, stop and fill.

It runs in its own network namespace with its own containerd and its own folders: no packet leaves
the machine, the machine's iptables and its own engine are untouched, and dockerd alone can be
killed, as on a host with systemd. Needs root, `ip`, `nsenter`, `containerd` and `dockerd`.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

NEEDED = ("ip", "nsenter", "containerd", "dockerd", "mount", "umount")


def lacking() -> str | None:
    """Why no private engine can be had here; None: it can."""
    if os.geteuid() != 0:
        return "a private engine needs root"
    missing = [tool for tool in NEEDED if shutil.which(tool) is None]
    return f"a private engine needs {', '.join(missing)}" if missing else None


class PrivateEngine:
    """One engine in one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.namespace = f"thunder-{name}"
        self.data = folder / "data"
        self.socket = folder / "docker.sock"
        self.host = f"unix://{self.socket}"
        self._containerd: subprocess.Popen[bytes] | None = None
        self._dockerd: subprocess.Popen[bytes] | None = None
        self._mounted = False

    def __enter__(self) -> "PrivateEngine":
        self.data.mkdir(parents=True, exist_ok=True)
        (self.folder / "daemon.json").write_text("{}")
        _run("ip", "netns", "add", self.namespace)
        _run("ip", "-n", self.namespace, "link", "set", "lo", "up")
        return self

    def __exit__(self, *exc: object) -> None:
        self._end(self._dockerd)
        self._end(self._containerd)
        # dockerd leaves mounts behind, most of all when it was killed.
        for mount in sorted(_mounts_under(self.folder), key=len, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
        _run("ip", "netns", "del", self.namespace)
        shutil.rmtree(self.folder, ignore_errors=True)

    def limit_disk(self, size: str) -> None:
        """Gives the engine a small disk of its own; call before `up`."""
        _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(self.data))

    def up(self, *arguments: str) -> None:
        """Starts what is not running, and waits until it answers."""
        if self._containerd is None:
            self._containerd = self._spawn(
                "containerd",
                *("--root", f"{self.folder}/cd/root", "--state", f"{self.folder}/cd/state"),
                *("-a", f"{self.folder}/cd/containerd.sock", "-l", "error"),
            )
            _until(self.folder / "cd/containerd.sock")
        (self.folder / "docker.pid").unlink(missing_ok=True)
        self._dockerd = self._spawn(
            "nsenter",
            f"--net=/run/netns/{self.namespace}",
            *("dockerd", "--containerd", f"{self.folder}/cd/containerd.sock"),
            *("--data-root", str(self.data), "--exec-root", f"{self.folder}/exec"),
            *("-p", f"{self.folder}/docker.pid", "-H", self.host, "-l", "warn"),
            # Not the machine's own: its data-root would contradict ours.
            *("--config-file", f"{self.folder}/daemon.json"),
            *arguments,
        )
        _until_answers(self.socket, self._dockerd)

    def kill(self) -> None:
        """Kills dockerd at once; its containers live on or die as they may."""
        self._signal(signal.SIGKILL)
        assert self._dockerd is not None, "not running"
        self._dockerd.wait()

    def hang(self) -> None:
        """Stops dockerd: connections open, nothing answers."""
        self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Lets it go on."""
        self._signal(signal.SIGCONT)

    def used_bytes(self) -> int:
        """Bytes in its layer store, as the file system counts them."""
        # Not across file systems: running containers' root folders are mounted in there.
        out = _run("du", "-sx", "--block-size=1", str(self.data / "overlay2"))
        return int(out.split()[0])

    def _signal(self, number: signal.Signals) -> None:
        assert self._dockerd is not None, "not running"
        self._dockerd.send_signal(number)

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{Path(command[0]).name}.log").open("ab")
        with log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @staticmethod
    def _end(process: "subprocess.Popen[bytes] | None") -> None:
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _mounts_under(folder: Path) -> list[str]:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    return [mount for mount in mounts if mount.startswith(f"{folder}/")]


def _until(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} did not appear")
        time.sleep(0.02)


def _until_answers(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log = (path.parent / "nsenter.log").read_text()[-2000:]
            raise RuntimeError(f"dockerd ended with {process.returncode}: {log}")
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1)
                client.connect(str(path))
                client.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                if b"200" in client.recv(64):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError(f"dockerd at {path} does not answer")
