"""Processes: which one a pid means, and those that programs own, which end with them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from environment_harness import Harness, owns, settled, until
from thunder_router.environments import processes
from thunder_router.environments.records import Kind, Process

Start = Callable[[str], subprocess.Popen[bytes]]


def test_a_process_is_known_by_more_than_its_pid() -> None:
    own = processes.identify(os.getpid())
    assert own is not None
    assert processes.runs(own)
    assert not processes.runs(replace(own, start_ticks=own.start_ticks + 1))
    assert not processes.runs(replace(own, boot_id="another"))


def test_a_process_that_ended_does_not_run_even_before_it_is_waited_for() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    process = processes.identify(child.pid)
    assert process is not None
    child.stdin.close()
    # Returns once it has ended, and leaves it a zombie.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.runs(process)
    child.wait()


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path, processes=True, process_grace_s=0.2)


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python program in a session of its own, and returns once it has said a line."""
    started = []

    def run(program: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
        )
        started.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    yield run
    for child in started:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, 9)
        child.communicate()


def children(pid: int) -> list[int]:
    """What the process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


OBEYS = "import signal; print(flush=True); signal.pause()"
IGNORES = (
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)\n"
    "while True: signal.pause()"
)


@pytest.mark.parametrize(("program", "status"), [(OBEYS, -15), (IGNORES, -9)])
async def test_a_process_ends_with_its_program_and_no_other_does(
    harness: Harness, start: Start, program: str, status: int
) -> None:
    mine, bystander = start(program), start(OBEYS)
    async with harness.router() as environments:
        assert environments.give_process("p1", mine.pid) is None
        await owns(environments, "p1", 1)
        # Nobody can have it a second time.
        assert environments.give_process("p2", mine.pid) is None
        await settled(environments)
        assert environments.owned("p2") == []
        environments.released("p2")
        await settled(environments)
        assert mine.poll() is None
        # No engine is needed for it.
        harness.engine.crash()
        environments.released("p1")
        await owns(environments, "p1", 0)
    assert mine.wait() == status
    assert bystander.poll() is None


async def test_the_group_that_a_process_leads_ends_with_it(harness: Harness, start: Start) -> None:
    leader = start(
        "import subprocess, sys, signal\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(child.pid, flush=True)\nsignal.pause()"
    )
    (child,) = children(leader.pid)
    async with harness.router() as environments:
        assert environments.give_process("p1", leader.pid) is None
        environments.released("p1")
        await owns(environments, "p1", 0)
    # Signalled with its leader, it may take a moment longer to be gone.
    async with asyncio.timeout(30):
        while processes.identify(child) is not None:  # noqa: ASYNC110 - not ours to wait for
            await asyncio.sleep(0.005)


async def test_a_process_that_ends_by_itself_is_nobodys_any_more(
    harness: Harness, start: Start
) -> None:
    child = start(OBEYS)
    async with harness.router() as environments:
        assert environments.give_process("p1", child.pid) is None
        await owns(environments, "p1", 1)
        child.kill()
        child.wait()
        await owns(environments, "p1", 0)


async def test_a_process_is_its_programs_after_a_restart_and_its_pid_alone_is_not(
    harness: Harness, start: Start
) -> None:
    child = start(OBEYS)
    async with harness.router() as environments:
        assert environments.give_process("p1", child.pid) is None
        await owns(environments, "p1", 1)
    async with harness.router() as environments:
        (resource,) = environments.owned("p1")
        assert Process.named(resource.ref) == processes.identify(child.pid)
        environments.released("p1")
        await owns(environments, "p1", 0)
    child.wait()
    bystander = start(OBEYS)
    known = processes.identify(bystander.pid)
    assert known is not None
    await processes.end(replace(known, start_ticks=known.start_ticks - 1), 0.1)
    await processes.end(replace(known, boot_id="another"), 0.1)
    assert bystander.poll() is None


async def test_what_no_program_may_own_is_refused(harness: Harness, tmp_path: Path) -> None:
    async with harness.router() as environments:
        for pid in (1, os.getpid(), os.getppid()):
            assert environments.give_process("p1", pid) is not None
        assert environments.give_process("p1", 2**22 + 1) is not None
        await settled(environments)
        assert environments.resources() == []
    (tmp_path / "off").mkdir()
    off = Harness(tmp_path / "off")
    async with off.router() as environments:
        why = environments.give_process("p1", os.getpid())
        assert why == "processes are not taken (environments.processes)"


async def test_a_process_is_no_environment(harness: Harness, start: Start) -> None:
    child = start(OBEYS)
    async with harness.router() as environments:
        assert environments.give_process("p1", child.pid) is None
        await owns(environments, "p1", 1)
        assert environments.owned("p1")[0].kind is Kind.PROCESS
        assert environments.environment("p1").state == "none"
        environments.released("p1")
        await until(environments, lambda: not environments.resources())
