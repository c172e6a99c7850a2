"""The journal, its replay, other policies, and the snapshot."""

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

from test_driver import House, finish
from thunder_router.cli import main
from thunder_router.config import SchedulingSettings
from thunder_router.errors import ConfigError
from thunder_router.scheduling import journal, snapshot, whatif
from thunder_router.scheduling.core import Scheduler, new_scheduler
from thunder_router.scheduling.journal import Journal
from thunder_router.scheduling.recorder import Recorder
from thunder_router.scheduling.snapshot import Memories

SETTINGS = SchedulingSettings(policy="adaptive", queue_limit=40, hold_limit_s=60.0)


def written(path: Path, *, max_bytes: int = 2**26, files: int = 4) -> Journal:
    return Journal(path, SETTINGS.model_dump(mode="json"), max_bytes=max_bytes, files=files)


def recorded(book: Journal) -> House:
    """A house whose core writes to `book`."""
    return House(
        wrap=lambda core: Recorder(core, book.writer("m")),
        **SETTINGS.model_dump(mode="json"),
    )


def a_day(house: House, seed: int, steps: int = 400) -> None:
    """Programs come, run and go on a worker that is too small for them all."""
    rng = random.Random(seed)
    house.up(0, tokens=3_000)
    house.up(1, tokens=2_000)
    running: list[Any] = []
    for _ in range(steps):
        match rng.randrange(8):
            case 0 | 1 | 2:
                try:
                    running.append(house.arrive(rng.choice("abcdefghij"), rng.randrange(50, 700)))
                except Exception:
                    continue
            case 3 | 4 if running:
                ticket = running.pop(rng.randrange(len(running)))
                if ticket.place is None:
                    ticket.cancelled()
                else:
                    finish(ticket, rng.randrange(50, 800), rng.randrange(90), ("bash",))
            case 5 if running:
                running.pop(rng.randrange(len(running))).failed()
            case 6:
                house.driver.release(rng.choice("abcdefghij"))
            case _:
                house.clock.advance(rng.randrange(4_000))
    for ticket in running:
        ticket.cancelled()
    house.check()


@pytest.mark.parametrize("seed", range(3))
def test_a_replay_decides_the_same_to_the_byte(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.jsonl"
    book = written(path)
    a_day(recorded(book), seed)
    book.close()
    lines = path.read_text().splitlines()
    assert len(lines) > 400
    assert sum('"admit"' in line for line in lines) > 20
    assert main(["replay", str(path), "--print"]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == lines[1:]
    assert f"lines={len(lines) - 1} differences=0" in said.err


def test_a_decision_that_differs_is_shown_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.jsonl"
    book = written(path)
    a_day(recorded(book), 1)
    book.close()
    lines = path.read_text().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if '"admit"' in line)
    lines[at] = lines[at].replace('["admit",', '["hold",')
    path.write_text("".join(lines))
    assert main(["replay", str(path)]) == 1
    said = capsys.readouterr().err
    assert f"- line={at} pool=m" in said
    assert "differences=1" in said


def test_a_journal_of_several_files_is_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    book = written(path, max_bytes=4096, files=100)
    house = recorded(book)
    a_day(house, 2)
    book.close()
    assert len(list(tmp_path.iterdir())) > 3
    assert main(["replay", str(path)]) == 0


def test_only_so_many_files_are_kept_and_a_lost_beginning_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.jsonl"
    book = written(path, max_bytes=4096, files=3)
    a_day(recorded(book), 2)
    book.close()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "journal.jsonl",
        "journal.jsonl.1",
        "journal.jsonl.2",
    ]
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) < 3 * 8192
    assert main(["replay", str(path)]) == 2
    assert "beginning" in capsys.readouterr().err


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    book = written(path)
    a_day(recorded(book), 1, steps=50)
    book.close()
    whole = path.read_text()
    path.write_text(whole[:-20])
    _, lines = journal.read(path)
    assert len([*lines]) == len(whole.splitlines()) - 2


@pytest.mark.parametrize("text", ["", "{}", "not json", '{"format": "thunder-journal-9"}'])
def test_what_is_no_journal_is_refused_on_one_line(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(text)
    assert main(["replay", str(path)]) == 2
    said = capsys.readouterr().err
    assert "not a journal" in said
    assert len(said.splitlines()) == 1


def test_a_journal_that_cannot_be_written_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"journal\.path"):
        written(tmp_path / "file" / "journal.jsonl")


def test_a_full_disk_costs_the_journal_and_no_request(caplog: pytest.LogCaptureFixture) -> None:
    book = written(Path("/dev/full"))
    house = recorded(book)
    a_day(house, 1)
    book.flush()
    assert "journal_stopped path=/dev/full" in caplog.text
    a_day(house, 2, steps=50)
    book.close()


def test_no_prompt_is_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    book = written(path)
    a_day(recorded(book), 1)
    book.close()
    events = {line[2]: line[3] for line in map(json.loads, path.read_text().splitlines()[1:])}
    assert set(events["arrive"]) == {"request", "program", "group", "prompt_tokens", "prefix"}
    assert set(events["finished"]) == {
        "request",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "cached_host_tokens",
        "tool",
    }


# --- what another policy would have done -------------------------------------------------------


def lines_of(path: Path, seed: int) -> list[journal.Line]:
    book = written(path)
    a_day(recorded(book), seed)
    book.close()
    return [*journal.read(path)[1]]


def test_under_its_own_policy_the_waiting_comes_out_as_it_was_recorded(tmp_path: Path) -> None:
    book = written(tmp_path / "j")
    house = recorded(book)
    house.up(0, tokens=1_000)
    first, second = house.arrive("a", 700), house.arrive("b", 700)
    house.clock.advance(3_000)
    finish(first, 700, 50)
    house.driver.release("a")
    house.clock.advance(10)
    assert second.place is not None
    house.clock.advance(2_000)
    finish(second, 700, 50)
    house.clock.advance(10)
    book.close()
    lines = [*journal.read(tmp_path / "j")[1]]
    told = whatif.as_recorded(lines)
    again = whatif.under(*whatif.turns_of(lines), lambda: new_scheduler(SETTINGS), patience_ms=0)
    assert (told.admitted, sorted(told.held_ms)) == (2, [0, 3_000])
    assert (again.admitted, sorted(again.held_ms)) == (2, [0, 3_000])


@pytest.mark.parametrize("policy", ["off", "paper", "adaptive"])
@pytest.mark.parametrize("seed", range(3))
def test_another_policy_ends_every_request_of_the_day_too(
    tmp_path: Path, policy: str, seed: int
) -> None:
    turns, others = whatif.turns_of(lines_of(tmp_path / "j", seed))
    made: list[Scheduler] = []

    def new_core() -> Scheduler:
        settings = SETTINGS.model_copy(update={"policy": policy})
        made.append(new_scheduler(settings))
        return made[-1]

    outcome = whatif.under(turns, others, new_core, patience_ms=100_000)
    assert outcome.admitted + outcome.rejected + outcome.left >= len(turns)
    assert len(outcome.held_ms) == outcome.admitted > 0
    counts = made[0].counts()
    assert (counts["waiting"], counts["in_flight"]) == (0, 0)
    made[0].check()


def test_off_holds_nobody_while_workers_are_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines_of(tmp_path / "j", 1)
    assert main(["replay", str(tmp_path / "j"), "--policy", "off"]) == 0
    recorded_line, off = capsys.readouterr().out.splitlines()
    assert "policy=adaptive (recorded)" in recorded_line
    assert "policy=off" in off
    assert "held_max_s=0.0" in off


# --- the snapshot ------------------------------------------------------------------------------


def url(worker: int) -> str:
    return f"http://worker-{worker}"


def test_programs_continue_where_they_were(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    before = House(policy="adaptive")
    before.up(0, tokens=10_000)
    before.up(1, tokens=10_000)
    homes = {}
    for n in range(20):
        ticket = before.arrive(f"p{n}", 100 + n)
        assert ticket.place is not None
        homes[f"p{n}"] = ticket.place.worker
        finish(ticket, 100 + n, 5)
    running = before.arrive("p0", 105)
    assert running.place is not None
    snapshot.write(path, snapshot.take(before.driver.pools, url, Memories({})))

    memories = Memories.read(path, 3_600_000)
    assert len(memories) == 20
    after = House(policy="adaptive")
    # The other way round: numbers are only one run's, URLs stay.
    numbers = {0: 1, 1: 0}
    for worker in (0, 1):
        after.up(worker, tokens=10_000)
        memories.recall(after.driver.pools[0], worker, url(numbers[worker]))
    assert len(memories) == 0
    counts = after.counts()
    assert (counts["programs"], counts["in_flight"]) == (20, 0)
    for name, home in homes.items():
        view = after.driver.pools[0].look()[0].program(name, after.clock.now_ms())
        assert view is not None
        ticket = after.arrive(name, view.context_tokens + 10)
        assert ticket.place is not None
        assert numbers[ticket.place.worker] == home
        finish(ticket, view.context_tokens + 10, 5)
    after.check()


def test_programs_of_a_worker_that_has_not_come_back_stay_in_the_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    house = House()
    house.up(0)
    finish(house.arrive("p"))
    snapshot.write(path, snapshot.take(house.driver.pools, url, Memories({})))
    waiting = Memories.read(path, 3_600_000)
    snapshot.write(path, snapshot.take(House().driver.pools, url, waiting))
    assert len(Memories.read(path, 3_600_000)) == 1


def test_programs_that_would_have_expired_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    house = House()
    house.up(0)
    finish(house.arrive("old"))
    house.clock.advance(50_000)
    finish(house.arrive("new"))
    snapshot.write(path, snapshot.take(house.driver.pools, url, Memories({})))
    [row] = Memories.read(path, 50_000).rows()
    assert row[0] == "new"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": "other"}', '{"format": 1}'])
def test_a_snapshot_that_cannot_be_read_is_warned_about_and_left(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "programs.json"
    path.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert len(Memories.read(path, 1000)) == 0
    assert "snapshot_unreadable" in caplog.text


def test_a_crash_while_writing_leaves_the_old_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    house = House()
    house.up(0)
    finish(house.arrive("p"))
    snapshot.write(path, snapshot.take(house.driver.pools, url, Memories({})))
    before = path.read_bytes()

    rows: list[list[object]] = [["p", None, 1, "u", 0, object()]]
    with pytest.raises(TypeError):
        snapshot.write(path, rows)
    (tmp_path / "programs.json.new").write_text("half a snap")
    assert path.read_bytes() == before
    assert len(Memories.read(path, 3_600_000)) == 1
