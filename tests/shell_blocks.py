"""The shell blocks of a Markdown page, and a way to run them as a reader would, from the top.

A block in a fence marked `sh` is run by `bash -eu`, in the folder it is given. A comment on the
line above its fence changes how:

    <!-- run: until "TEXT" -->       it serves: start it, wait until it has printed TEXT, and leave
                                     it running for the blocks below; it is ended after the last one
    <!-- run: as COMMAND -->         run this shorter form of it instead
    <!-- run: elsewhere in PATH -->  PATH, a test file or a Makefile, runs it already; it must be
                                     there and name every command of the block
    <!-- output -->                  above a fence marked `text`: what the last block printed. Lines
                                     must appear in that order; digits stand for any digits, and a
                                     line of "..." for any lines

Port numbers are replaced by free ones, the same for the same number all over the page, so that a
page can name its defaults and still be run beside anything else.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["Block", "Reader", "blocks"]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!-- (.*?) -->\s*\Z")
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}|(?<=localhost:)\d{4,5}|(?<=--port )\d{4,5}")


@dataclass(frozen=True)
class Block:
    """One fenced block with the comment above it, without its arrows."""

    line: int
    language: str
    text: str
    note: str


def blocks(page: str) -> Iterator[Block]:
    """Every fenced block, from the top."""
    for match in FENCE.finditer(page):
        comment = COMMENT.search(page[: match.start()])
        yield Block(
            line=page.count("\n", 0, match.start()) + 1,
            language=match[1],
            text=match[2],
            note=comment[1] if comment else "",
        )


@dataclass
class Reader:
    """Runs blocks one after another; a context, for what serves must be ended.

    Attributes:
        folder: Where commands run.
        scratch: Where the output of what serves is kept.
        said: What the last block printed.
    """

    folder: Path
    scratch: Path
    timeout_s: float = 120
    said: str = ""
    _ports: dict[str, str] = field(default_factory=dict)
    _serving: list[subprocess.Popen[str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for child in reversed(self._serving):
            # Each was started as the leader of its own process group.
            os.killpg(child.pid, signal.SIGTERM)
            child.wait(30)

    def read(self, block: Block) -> None:
        """Runs a shell block or compares an output block; other fences are prose.

        Raises:
            AssertionError: the command failed, or the output is another; the message says where.
        """
        kind, _, rest = block.note.partition(": ")
        if block.language == "sh" and kind == "run" and rest.startswith("elsewhere in "):
            self._is_run_elsewhere(block, self.folder / rest.removeprefix("elsewhere in "))
        elif block.language == "sh" and kind == "run" and rest.startswith("until "):
            self._serve(block, rest.removeprefix("until ").strip('"'))
        elif block.language == "sh":
            command = rest.removeprefix("as ") if kind == "run" else block.text
            self._run(block, command)
        elif block.note == "output":
            self._compare(block)

    def _run(self, block: Block, command: str) -> None:
        done = subprocess.run(
            ["bash", "-euc", self._with_free_ports(command)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_environment(),
            timeout=self.timeout_s,
            check=False,
        )
        self.said = done.stdout
        assert done.returncode == 0, f"line {block.line}: {command}\n{done.stdout[-2000:]}"

    def _serve(self, block: Block, ready: str) -> None:
        log = self.scratch / f"block-{block.line}.log"
        command = self._with_free_ports(block.text).strip()
        with log.open("w") as sink:
            child = subprocess.Popen(
                ["bash", "-euc", command],
                cwd=self.folder,
                stdout=sink,
                stderr=sink,
                text=True,
                env=_environment(),
                start_new_session=True,
            )
        self._serving.append(child)
        ready = self._with_free_ports(ready)
        deadline = time.monotonic() + self.timeout_s
        while ready not in log.read_text():
            assert child.poll() is None, f"line {block.line} ended:\n{log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"line {block.line}: {ready!r} never came"
            time.sleep(0.05)
        self.said = log.read_text()

    def _is_run_elsewhere(self, block: Block, where: Path) -> None:
        text = where.read_text()
        for command in block.text.splitlines():
            words = command.partition("#")[0].strip()
            name = words.removeprefix("make ")
            assert not words or name in text, f"line {block.line}: {where} does not run {words!r}"

    def _compare(self, block: Block) -> None:
        said = iter([_masked(line) for line in self.said.splitlines()])
        expected = [line for line in block.text.splitlines() if line.strip() != "..."]
        for line in expected:
            assert _masked(line) in said, f"line {block.line}: not printed: {line}\n{self.said}"

    def _with_free_ports(self, text: str) -> str:
        return PORT.sub(lambda match: self._port(match[0]), text)

    def _port(self, named: str) -> str:
        if named not in self._ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._ports[named] = str(probe.getsockname()[1])
        return self._ports[named]


def _environment() -> dict[str, str]:
    """This one's, with the commands of the interpreter's own environment found first."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def _masked(line: str) -> str:
    """The line with every number made `0` and runs of blanks made one."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d,.]*", "0", line)).strip()
