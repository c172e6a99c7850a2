"""Preparing and images over a fake engine."""

import asyncio
from pathlib import Path

import pytest

from environment_harness import Harness, owns, settled, until
from thunder_router.environment_settings import (
    ImageSettings,
    PreparationSettings,
    ProbeSettings,
    TemplateSettings,
)
from thunder_router.environments import Environments, Store, labels
from thunder_router.environments.disk import Room
from thunder_router.environments.engine import EngineError, ImageFacts, Layer
from thunder_router.environments.records import Image, Kind, Spec

MIB = 1 << 20
INIT = ("sh", "-c", "setup")
SWE = TemplateSettings(
    match=r"^swe-(?P<repo>[a-z]+)-",
    image="swe/{repo}:1",
    init=INIT,
    probe=ProbeSettings(exec=("true",), interval_s=0.001),
    ports=(8000,),
)


def harness_with(folder: Path, **changes: object) -> Harness:
    harness = Harness(folder, **({"templates": {"swe": SWE}} | changes))
    shared = Layer("sha256:shared", 20 * MIB)
    for name, size in (("django", 10), ("flask", 5), ("sphinx", 7)):
        own = Layer(f"sha256:{name}", size * MIB)
        harness.engine.images_there[f"swe/{name}:1"] = (shared, own)
    return harness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return harness_with(tmp_path)


async def determined(environments: Environments, program: str) -> None:
    await until(environments, lambda: environments.environment(program).settled)


async def ready(environments: Environments, program: str) -> None:
    await until(environments, lambda: environments.environment(program).state == "ready")


async def test_a_prepared_environment_goes_through_every_step_and_away_with_its_program(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.prepare("swe-django-1", 100)
        await ready(environments, "swe-django-1")
        view = environments.environment("swe-django-1")
        assert view.image == "swe/django:1"
        assert view.ports == ((8000, 48_000),)
        (box,) = engine.objects.values()
        assert view.container == box.ref
        assert box.labels == {
            labels.MANAGED: "1",
            labels.ROUTER: "mine",
            labels.PROGRAM: "swe-django-1",
            labels.GENERATION: "1",
            labels.OPERATION: "environment",
        }
        steps = [call for call, _ in engine.calls if call in ("pull", "create", "start", "execute")]
        assert steps == ["pull", "create", "start", "execute", "execute"]
        environments.released("swe-django-1")
        await owns(environments, "swe-django-1", 0)
        assert engine.objects == {}
        assert environments.environment("swe-django-1").state == "none"


async def test_programs_that_need_one_image_share_one_pull(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, prepare=PreparationSettings(ahead=100))
    async with harness.router() as environments:
        for number in range(20):
            environments.prepare(f"swe-django-{number}", 0)
        for number in range(20):
            await ready(environments, f"swe-django-{number}")
    assert [ref for call, ref in harness.engine.calls if call == "pull"] == ["swe/django:1"]
    assert len(harness.engine.objects) == 20


async def test_no_more_than_ahead_are_prepared_until_programs_come_to_theirs(
    tmp_path: Path,
) -> None:
    harness = harness_with(tmp_path, prepare=PreparationSettings(ahead=2))
    async with harness.router() as environments:
        for number in range(4):
            environments.prepare(f"swe-django-{number}", 0)
        await ready(environments, "swe-django-1")
        await settled(environments)
        assert environments.environment("swe-django-2").state == "planned"
        environments.restored("swe-django-0")
        await ready(environments, "swe-django-2")
        environments.released("swe-django-1")
        await ready(environments, "swe-django-3")


async def test_an_environment_is_begun_when_what_is_left_of_the_wait_is_needed_for_it(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        engine.gate = asyncio.Event()
        environments.prepare("swe-django-1", 0)
        await until(environments, lambda: engine.in_flight > 0)
        # Its first time, measured by the turned clock, is 8 s.
        await_turn = harness.clock.now_ms + 8_000
        harness.clock.now_ms = await_turn
        engine.gate.set()
        engine.gate = None
        await ready(environments, "swe-django-1")
        environments.prepare("swe-django-2", 60_000)
        await settled(environments)
        assert environments.environment("swe-django-2").state == "planned"
        await harness.turn(environments, 49)
        assert environments.environment("swe-django-2").state == "planned"
        await harness.turn(environments, 2)
        await ready(environments, "swe-django-2")


async def test_release_in_the_midst_of_preparing_leaves_nothing(harness: Harness) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.prefetch("swe/django:1")
        await until(environments, lambda: "swe/django:1" in engine.images_here)
        engine.gate = asyncio.Event()
        environments.prepare("swe-django-1", 0)
        await until(environments, lambda: engine.in_flight > 0)
        environments.released("swe-django-1")
        await until(environments, lambda: environments.status().in_flight == 1)
        engine.gate.set()
        await owns(environments, "swe-django-1", 0)
        assert engine.objects == {}


@pytest.mark.parametrize(
    ("fault", "error", "reason"),
    [
        ("pull", EngineError(404, "manifest unknown"), "manifest unknown"),
        ("create", EngineError(400, "invalid config"), "invalid config"),
    ],
)
async def test_what_cannot_be_prepared_fails_open_and_leaves_nothing(
    harness: Harness, fault: str, error: EngineError, reason: str
) -> None:
    harness.engine.fault(fault, error)
    async with harness.router() as environments:
        environments.prepare("swe-django-1", 0)
        await until(environments, lambda: environments.environment("swe-django-1").settled)
        view = environments.environment("swe-django-1")
        assert (view.state, reason in (view.error or "")) == ("failed", True)
        await owns(environments, "swe-django-1", 0)
        # Requests go on as if nothing had been promised.
        environments.request("swe-django-1")
        await settled(environments)
    assert harness.engine.objects == {}


async def test_an_init_that_fails_fails_the_environment(harness: Harness) -> None:
    harness.engine.exit_status[INIT] = 3
    async with harness.router() as environments:
        environments.prepare("swe-django-1", 0)
        await until(environments, lambda: environments.environment("swe-django-1").settled)
        assert environments.environment("swe-django-1").error == "init exited with 3"
        await owns(environments, "swe-django-1", 0)
    assert harness.engine.objects == {}


async def test_a_port_that_is_taken_is_tried_again_with_a_fresh_container(
    harness: Harness,
) -> None:
    engine = harness.engine
    engine.fault(
        "start", EngineError(500, "Bind for 127.0.0.1:49153 failed: port is already allocated")
    )
    async with harness.router() as environments:
        environments.prepare("swe-django-1", 0)
        await settled(environments)
        await harness.turn(environments, 60)
        await ready(environments, "swe-django-1")
        # The one that never started is not left in `Created`.
        assert len(engine.objects) == 1
        assert len([1 for call, _ in engine.calls if call == "create"]) == 2


@pytest.mark.parametrize("image", ["other/x:1", "swe/../x", "swe//x", "swe/x?force=1"])
async def test_an_image_that_is_not_allowed_is_never_asked_for(
    harness: Harness, image: str
) -> None:
    async with harness.router() as environments:
        assert not environments.prefetch(image)
        await settled(environments)
    assert not any(call in ("image", "pull") for call, _ in harness.engine.calls)


async def evicting(harness: Harness, environments: Environments) -> None:
    """Fills the disk, and lets the router look at it."""
    harness.room = Room(total=1000 * MIB, free=50 * MIB)
    await environments.disk.look()
    await settled(environments)


async def test_only_idle_images_that_this_router_pulled_are_evicted(tmp_path: Path) -> None:
    harness = harness_with(tmp_path)
    engine = harness.engine
    await engine.pull("swe/sphinx:1")
    async with harness.router() as environments:
        for image in ("swe/django:1", "swe/flask:1", "swe/sphinx:1"):
            assert environments.prefetch(image)
        await until(environments, lambda: len(engine.images_here) == 3)
        await settled(environments)
        await evicting(harness, environments)
        assert len(engine.images_here) == 3
        # Past the prefetch window: flask is in use by an agent's own container, sphinx not ours.
        await harness.turn(environments, 3601)
        engine.put(Kind.CONTAINER, "agents", image="swe/flask:1")
        await evicting(harness, environments)
        assert set(engine.images_here) == {"swe/flask:1", "swe/sphinx:1"}
        assert environments.status().images_ours == 1


async def test_an_image_that_is_evicted_under_a_newcomer_is_pulled_again(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        for turn in range(20):
            environments.prefetch("swe/django:1")
            await until(environments, lambda: "swe/django:1" in engine.images_here)
            await harness.turn(environments, 3601)
            harness.room = Room(total=1000 * MIB, free=50 * MIB)
            await environments.disk.look()
            environments.prepare(f"swe-django-{turn}", 0)
            harness.room = Room(total=1000 * MIB, free=900 * MIB)
            await ready(environments, f"swe-django-{turn}")
            environments.released(f"swe-django-{turn}")
            await owns(environments, f"swe-django-{turn}", 0)
        assert environments.status().tally["evictions"] == 20
        assert "prepare_failed" not in environments.status().tally


async def test_below_the_reserve_nothing_is_prepared_and_teardown_goes_on(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", {labels.PROGRAM: "p1"})
        await owns(environments, "p1", 1)
        harness.room = Room(total=1000 * MIB, free=10 * MIB)
        await environments.disk.look()
        environments.prepare("swe-django-1", 0)
        environments.released("p1")
        await owns(environments, "p1", 0)
        assert environments.environment("swe-django-1").state == "planned"
        harness.room = Room(total=1000 * MIB, free=900 * MIB)
        await environments.disk.look()
        await ready(environments, "swe-django-1")


async def test_a_restart_in_the_midst_of_preparing_begins_with_a_fresh_container(
    harness: Harness,
) -> None:
    engine = harness.engine
    async with harness.router() as environments:
        environments.prefetch("swe/django:1")
        await until(environments, lambda: "swe/django:1" in engine.images_here)
        engine.fault("execute", *[EngineError(500, "try again")] * 1)
        environments.prepare("swe-django-1", 0)
        await until(environments, lambda: bool(engine.objects))
    left = set(engine.objects)
    async with harness.router() as environments:
        await settled(environments)
        await harness.turn(environments, 60)
        await ready(environments, "swe-django-1")
        assert len(engine.objects) == 1
        assert set(engine.objects) != left


async def test_images_with_an_allow_list_of_nothing_prepare_nothing(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, images=ImageSettings())
    async with harness.router() as environments:
        environments.prepare("swe-django-1", 0)
        await until(environments, lambda: environments.environment("swe-django-1").settled)
        assert environments.environment("swe-django-1").state == "failed"


async def test_dry_run_does_nothing_to_the_engine(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, dry_run=True)
    engine = harness.engine
    async with harness.router() as environments:
        environments.request("p1")
        engine.put(Kind.CONTAINER, "box", {labels.PROGRAM: "p1"})
        await owns(environments, "p1", 1)
        environments.prepare("swe-django-1", 0)
        environments.released("p1")
        await settled(environments)
    changing = {"create", "start", "remove", "pull", "pause", "stop", "remove_image", "execute"}
    assert not changing & {call for call, _ in engine.calls}
    assert engine.names() == {"box"}


async def test_an_announced_environment_survives_a_restart(harness: Harness) -> None:
    async with harness.router() as environments:
        environments.open("p1", spec=Spec("swe/flask:1"))
        await settled(environments)
    async with harness.router() as environments:
        environments.prepare("p1", 0)
        await ready(environments, "p1")
        environments.released("p1")
        await owns(environments, "p1", 0)
        # The next generation was announced with nothing.
        environments.prepare("p1", 0)
        await settled(environments)
        assert environments.environment("p1").state == "none"


async def test_images_that_were_never_there_and_others_images_leave_no_record(
    tmp_path: Path,
) -> None:
    template = TemplateSettings(match="^p", image="swe/{id}:1")
    harness = harness_with(tmp_path, templates={"t": template})
    engine = harness.engine
    engine.images_here["swe/p0:1"] = ImageFacts("sha256:theirs", ("swe/p0:1",))
    async with harness.router() as environments:
        for number in range(20):
            environments.prepare(f"p{number}", 0)
            await determined(environments, f"p{number}")
            environments.released(f"p{number}")
        await until(environments, lambda: not environments.resources())
        environments.reconcile()
        await until(environments, lambda: not environments.images())
    store = Store(tmp_path / "journal.db")
    assert [record for record in store.load() if isinstance(record, Image)] == []
    store.close()
