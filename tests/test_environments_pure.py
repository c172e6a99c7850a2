"""The small pure parts: table, backoff, planner, claims, names, Docker's JSON, outcomes."""

import hashlib
import random
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thunder_router.environment_settings import (
    ComposeRule,
    DiskSettings,
    EnvironmentSettings,
    HookSettings,
    TemplateSettings,
)
from thunder_router.environments import backoff, docker_facts, eviction, labels, templates
from thunder_router.environments.adopt import Claims
from thunder_router.environments.disk import Room
from thunder_router.environments.docker_engine import negotiated
from thunder_router.environments.engine import EngineError, EngineUnreachableError, Layer
from thunder_router.environments.events import Outcome, Step
from thunder_router.environments.outcomes import judged
from thunder_router.environments.preparing import _STEPS, _after
from thunder_router.environments.records import Kind, Origin, Owner, Resource, Sighting, Spec, State
from thunder_router.environments.registry import located
from thunder_router.environments.transitions import MOVES, moved
from thunder_router.errors import TransitionError

GIB = 1024**3


def test_every_state_has_a_row_and_can_be_released() -> None:
    assert set(MOVES) == set(State)
    for state in State:
        assert state.leaving or State.RELEASING in MOVES[state]


@pytest.mark.parametrize("init", [(), ("true",)])
@pytest.mark.parametrize("probe", [(), ("true",)])
def test_every_step_of_every_spec_is_a_move_of_the_table(
    init: tuple[str, ...], probe: tuple[str, ...]
) -> None:
    spec = Spec("i", init=init, probe_exec=probe)
    state, seen = State.CREATING, []
    while state is not State.READY:
        seen.append(state)
        following = _after(state, spec)
        assert following in MOVES[state]
        state = following
    assert (State.INITIALIZING in seen, State.PROBING in seen) == (bool(init), bool(probe))
    assert set(seen) <= set(_STEPS)


def test_a_move_that_is_not_in_the_table_is_refused() -> None:
    gone = Resource(Owner("p", 1), Kind.VOLUME, "v", Origin.ADOPTED, State.RELEASING, 0)
    with pytest.raises(TransitionError, match="volume:v cannot go from releasing to ready"):
        moved(gone, State.READY, 1)


@given(st.integers(1, 10_000), st.integers())
def test_backoff_stays_under_its_bound(attempts: int, seed: int) -> None:
    wait = backoff.delay_ms(attempts, random.Random(seed))
    assert 0 <= wait <= min(60_000, 500 * 2 ** min(attempts - 1, 40))


LAYERS = [Layer(f"sha256:{n}", 2**n) for n in range(7)]
IMAGES = st.dictionaries(
    st.sampled_from("abcdefg"), st.lists(st.sampled_from(LAYERS), unique=True), max_size=7
)


@given(IMAGES, st.data())
def test_a_plan_frees_what_it_says_and_no_image_of_it_in_vain(
    images: dict[str, list[Layer]], data: st.DataObject
) -> None:
    candidates = data.draw(st.lists(st.sampled_from(sorted(images)), unique=True)) if images else []
    needed = data.draw(st.integers(0, 300))
    plan = eviction.plan(images, candidates, needed)
    assert set(plan) <= set(candidates)

    def freed(gone: list[str]) -> int:
        """By brute force: what is on disk before, less what is on disk after."""
        before = {layer for layers in images.values() for layer in layers}
        after = {layer for ref, layers in images.items() if ref not in gone for layer in layers}
        return sum(layer.size_bytes for layer in before - after)

    assert eviction.exclusive_bytes(images, plan) == freed(plan)
    assert freed(plan) >= min(needed, freed(candidates))
    for ref in plan:
        assert freed([other for other in plan if other != ref]) < needed


def test_a_shared_layer_goes_only_with_the_last_that_has_it() -> None:
    shared, a, b = Layer("s", 20), Layer("a", 10), Layer("b", 5)
    images = {"a": (shared, a), "b": (shared, b)}
    assert eviction.exclusive_bytes(images, ["a"]) == 10
    assert eviction.exclusive_bytes(images, ["a", "b"]) == 35
    assert eviction.plan(images, ["a", "b"], 11) == ["a", "b"]
    assert eviction.plan(images, ["b", "a"], 8) == ["a"]


@pytest.mark.parametrize(
    ("program", "may"),
    [("run7-task42", True), ("a:b.c_d", True), ("default", False), ("", False), (None, False)],
)
def test_who_may_own(program: str | None, may: bool) -> None:
    assert labels.may_own(program) is may


def test_names_differ_by_everything_that_identifies_and_stay_short() -> None:
    names = {
        labels.object_name(router, program, generation, role)
        for router in ("r", "a-very-long-router-name")
        for program in ("p", "p1")
        for generation in (1, 2)
        for role in ("environment", "other")
    }
    assert len(names) == 16
    assert max(map(len, names)) <= 63


def object_with(stamped: dict[str, str], **more: object) -> Sighting:
    return Sighting(Kind.CONTAINER, "c", stamped, 0, **more)  # type: ignore[arg-type]


RULES = (ComposeRule(program="^(?P<id>.+)__agent$", compose_project="^(?P<id>.+)__env$"),)


def test_an_object_and_its_program_raise_the_same_claim() -> None:
    claims = Claims("mine", RULES, by_peer=True)
    project = object_with({labels.COMPOSE_PROJECT: "task-7__env"}, addresses=("10.0.0.2",))
    assert claims.of_object(project) == ["rule0:task-7", "peer:10.0.0.2"]
    assert claims.of_program("Task-7__agent", "10.0.0.2") == [
        "label:Task-7__agent",
        "rule0:task-7",
        "peer:10.0.0.2",
    ]


def test_a_label_binds_before_any_rule_and_another_routers_object_raises_no_claim() -> None:
    claims = Claims("mine", RULES, by_peer=True)
    stamped = {labels.PROGRAM: "p", labels.COMPOSE_PROJECT: "q__env"}
    assert claims.of_object(object_with(stamped)) == ["label:p"]
    assert claims.of_object(object_with({**stamped, labels.ROUTER: "other"})) == []
    assert claims.of_object(object_with({**stamped, labels.PROTECT: "0"})) == []
    assert claims.of_object(object_with({**stamped, labels.PROGRAM: "default"})) == []


def test_the_newest_common_api_is_spoken() -> None:
    assert negotiated("1.41", "1.12") == "v1.41"
    assert negotiated("1.52", "1.40") == "v1.44"
    assert negotiated("1.60", "1.50") == "v1.50"


def test_times_are_read_to_the_millisecond_and_seconds_to_their_end() -> None:
    noon = int(datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()) * 1000
    assert docker_facts.unix_ms("2026-11-30T12:00:00.123456789Z") == noon + 123
    assert docker_facts.unix_ms("2026-11-30T12:00:00.5Z") == noon + 500
    assert docker_facts.unix_ms("2026-11-30T12:00:00Z") == noon + 999
    assert docker_facts.unix_ms("2026-11-30T13:00:00+01:00") == noon + 999


def test_layers_are_named_by_chain_and_sized_from_history() -> None:
    history = [{"Size": 30}, {"Size": 0}, {"Size": 20}, {"Size": 10}]
    layers = docker_facts.layers(["sha256:a", "sha256:b", "sha256:c"], history, 60)
    chained = hashlib.sha256(b"sha256:a sha256:b").hexdigest()
    assert layers[0] == Layer("sha256:a", 10)
    assert layers[1] == Layer(f"sha256:{chained}", 20)
    assert layers[2].size_bytes == 30
    odd = docker_facts.layers(["sha256:a", "sha256:b"], [{"Size": 5}], 60)
    assert [layer.size_bytes for layer in odd] == [0, 60]


def test_a_created_container_has_no_way_out() -> None:
    spec = Spec("i", ports=(8000,), memory_bytes=GIB, pids=9, cpus=0.5)
    config = docker_facts.container_config(spec, {"a": "b"})
    assert config["HostConfig"] == {
        "Init": True,
        "NetworkMode": "none",
        "PortBindings": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": ""}]},
        "Memory": GIB,
        "PidsLimit": 9,
        "NanoCpus": 500_000_000,
        "SecurityOpt": ["no-new-privileges"],
    }


@pytest.mark.parametrize(
    ("step", "error", "outcome"),
    [
        (Step.CREATE, EngineError(404, "No such image: x"), Outcome.MISSING),
        (Step.CREATE, EngineError(404, "could not find an available, non-overlapping"), "retry"),
        (Step.CREATE, EngineError(400, "invalid"), Outcome.REFUSED),
        (Step.START, EngineError(500, "port is already allocated"), Outcome.RETRY),
        (Step.PULL, EngineError(500, "manifest unknown"), Outcome.REFUSED),
        (Step.PULL, EngineError(500, "connection reset by peer"), Outcome.RETRY),
        (Step.REMOVE, EngineError(409, "removal is already in progress"), Outcome.RETRY),
        (Step.THAW, EngineError(404, "No such container"), Outcome.MISSING),
        (Step.REMOVE, EngineUnreachableError("gone"), Outcome.UNREACHABLE),
    ],
)
def test_what_a_refusal_means(step: Step, error: EngineError, outcome: str) -> None:
    assert judged(step, error) == outcome


@pytest.mark.parametrize(
    ("ref", "place"),
    [
        ("127.0.0.1:5000/swe/a:1", ("127.0.0.1:5000", "swe/a", "1")),
        ("ghcr.example/a/b", ("ghcr.example", "a/b", "latest")),
        ("localhost/a@sha256:12", ("localhost", "a", "sha256:12")),
        ("swe/a:1", None),
        ("busybox", None),
    ],
)
def test_where_an_images_registry_is(ref: str, place: tuple[str, str, str] | None) -> None:
    assert located(ref) == place


def test_room_is_made_from_the_high_mark_down_to_the_low_one() -> None:
    settings = DiskSettings(high=0.85, low=0.75, reserve_bytes=5 * GIB)
    assert Room(100 * GIB, 16 * GIB).above_low(settings) == 0
    assert Room(100 * GIB, 10 * GIB).above_low(settings) == 15 * GIB
    assert Room(1000 * GIB, GIB).reserve(settings) == 5 * GIB
    assert Room(10 * GIB, GIB).reserve(settings) == GIB // 2


def test_a_template_fills_its_image_from_the_programs_id() -> None:
    swe = TemplateSettings(match=r"^swe-(?P<instance>.+)$", image="swebench/{instance}:{id}")
    settings = EnvironmentSettings(templates={"swe": swe})
    spec = templates.of_program(settings, "swe-django-1")
    assert spec is not None
    assert spec.image == "swebench/django-1:swe-django-1"
    assert templates.of_program(settings, "other") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"match": "(", "image": "i"},
        {"match": "", "image": "i", "network": "host"},
        {"match": "", "image": "i", "privileged": True},
        {"match": "", "image": "i", "volumes": ["/:/host"]},
    ],
)
def test_a_template_cannot_ask_for_what_safety_forbids(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"match|network|privileged|volumes"):
        TemplateSettings.model_validate(wrong)


def test_a_hook_is_a_call_or_a_command_and_not_both() -> None:
    for way in ({}, {"url": "http://h", "command": ["c"]}):
        with pytest.raises(ValueError, match="either url or command"):
            HookSettings.model_validate({"name": "h", "on": ["release"], **way})


def test_a_compose_rule_needs_an_id_group() -> None:
    with pytest.raises(ValueError, match="group named id"):
        ComposeRule(program="^x$", compose_project="^(?P<id>.+)$")
