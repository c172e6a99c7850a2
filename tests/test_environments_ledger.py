"""The ledger against a small world: whatever order things happen in, the promises hold.

A Hypothesis machine plays agents, bystanders, another router, an engine that loses events, fails,
dies and comes back, and a router that is killed and restarted from its journal.
"""

import random
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from thunder_router.config import EnvironmentSettings
from thunder_router.environment_settings import ImageSettings, PreparationSettings
from thunder_router.environments import actions, events, labels
from thunder_router.environments.events import Ended, Outcome, Step
from thunder_router.environments.ledger import Ledger
from thunder_router.environments.records import (
    Freshness,
    Image,
    Kind,
    Program,
    Resource,
    Sighting,
    Spec,
    State,
)

SPEC = Spec(image="swe/a:1", init=("true",), probe_exec=("true",))
SETTINGS = EnvironmentSettings(
    router_id="mine",
    images=ImageSettings(allow=("swe/*",), min_idle_s=1),
    prepare=PreparationSettings(ahead=2, on_pause="pause"),
)
PROGRAMS = st.sampled_from(["a", "a", "a", "b", "c", "default"])
HOURS = 3_600_000

Work = actions.Do | actions.RunHook | actions.Look | actions.Sweep | actions.Recheck


class World(RuleBasedStateMachine):
    """Everything outside the ledger, and the promises it makes to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.ledger = Ledger(SETTINGS, random.Random(7))
        self.journal: dict[tuple[str, str], Program | Resource | Image] = {}
        self.work: list[Work] = []
        self.here: dict[tuple[Kind, str], Sighting] = {}
        self.execs: set[str] = set()
        self.images: dict[str, bool] = {}
        """Images on the engine; whether a stranger brought it."""
        self.bystanders: set[tuple[Kind, str]] = set()
        self.count = 0

    # === the shell ===

    def tell(self, event: events.Event) -> None:
        self.carry_on(self.ledger.step(event, self.now_ms))

    def carry_on(self, asked: Iterable[actions.Action]) -> None:
        """Journals first, as the shell must; then remembers what is to be done."""
        asked = list(asked)
        for action in asked:
            match action:
                case actions.Keep(record=Program() as program):
                    self.journal["programs", program.id] = program
                case actions.Keep(record=Resource() as resource):
                    self.journal["resources", resource.key] = resource
                case actions.Keep(record=Image() as image):
                    self.journal["images", image.ref] = image
                case actions.Forget(table=table, key=key):
                    assert self.journal.pop((table, key), None) is not None
        for action in asked:
            match action:
                case actions.Keep() | actions.Forget():
                    pass
                case actions.Cancel(key=key):
                    assert any(key == self.key(work) for work in self.work)
                case actions.Do(target=target, step=step):
                    self.judge(target, step)
                    self.work.append(action)
                case _:
                    self.work.append(action)

    def judge(self, target: Resource | Image, step: Step) -> None:
        """What may be asked of the engine at all."""
        table, key = (
            ("images", target.ref)
            if isinstance(target, Image)
            else (
                "resources",
                target.key,
            )
        )
        assert self.journal[table, key] == target, "journaled before it is asked for"
        assert all(self.key(work) != target.key for work in self.work), "one step at a time"
        if isinstance(target, Image):
            if step is Step.EVICT:
                assert not self.images.get(target.ref, False), "a stranger's image stays"
            return
        sighting = self.here.get((target.kind, target.target))
        if sighting is not None:
            assert not labels.out_of_bounds(sighting.labels, "mine")
            assert (target.kind, sighting.ref) not in self.bystanders
        if step is Step.REMOVE:
            assert target.state.leaving
        if step is Step.FREEZE:
            assert target.target not in self.execs, "a running tool is never frozen"

    @staticmethod
    def key(work: Work) -> str | None:
        match work:
            case actions.Do(target=target):
                return target.key
            case actions.RunHook(hook=hook):
                return hook.key
            case _:
                return None

    def name(self) -> str:
        self.count += 1
        return f"{self.count:064x}"

    # === what happens ===

    @initialize()
    def engine_comes_up(self) -> None:
        self.tell(events.Relisted(self.now_ms, ()))

    @rule(ms=st.sampled_from([0, 1, 700, 61_000, HOURS]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.tell(events.Tick())

    @rule(program=PROGRAMS)
    def request(self, program: str) -> None:
        self.tell(events.Requested(program))

    @rule(
        program=PROGRAMS,
        router=st.sampled_from([None, "mine", "other"]),
        kind=st.sampled_from([Kind.CONTAINER, Kind.NETWORK, Kind.VOLUME]),
        protected=st.booleans(),
        seen=st.booleans(),
    )
    def agent_creates(
        self, program: str, router: str | None, kind: Kind, protected: bool, seen: bool
    ) -> None:
        stamped = {labels.PROGRAM: program}
        if router is not None:
            stamped[labels.ROUTER] = router
        if protected:
            stamped[labels.PROTECT] = "1"
        self.create(kind, stamped, seen)

    @rule(kind=st.sampled_from([Kind.CONTAINER, Kind.VOLUME]), seen=st.booleans())
    def bystander_creates(self, kind: Kind, seen: bool) -> None:
        self.bystanders.add((kind, self.create(kind, {"com.example": "1"}, seen)))

    def create(self, kind: Kind, stamped: dict[str, str], seen: bool) -> str:
        ref = self.name()
        sighting = Sighting(kind, ref, stamped, self.now_ms, name=f"n{ref}", running=True)
        self.here[kind, ref] = sighting
        if seen:
            self.tell(events.Sighted(sighting))
        return ref

    @rule(program=PROGRAMS, pick=st.integers(0, 5))
    def registers(self, program: str, pick: int) -> None:
        if refs := [ref for kind, ref in self.here if kind is Kind.CONTAINER]:
            ref = refs[pick % len(refs)]
            if (Kind.CONTAINER, ref) not in self.bystanders:
                self.tell(events.Registered(program, Kind.CONTAINER, ref))

    @rule(pick=st.integers(0, 5))
    def agent_removes(self, pick: int) -> None:
        if mine := [key for key in self.here if key not in self.bystanders]:
            kind, ref = mine[pick % len(mine)]
            del self.here[kind, ref]
            self.tell(events.Vanished(kind, ref))

    @rule(program=PROGRAMS)
    def release(self, program: str) -> None:
        self.tell(events.Released(program))

    @rule(program=PROGRAMS)
    def expire(self, program: str) -> None:
        self.tell(events.Suspected(program, "expired"))

    @rule(program=PROGRAMS, waiting=st.booleans())
    def pause(self, program: str, waiting: bool) -> None:
        self.tell(events.Paused(program, waiting))

    @rule(program=PROGRAMS)
    def restore(self, program: str) -> None:
        self.tell(events.Restored(program))

    @rule(program=PROGRAMS, wait_ms=st.sampled_from([0, 5_000]))
    def prepare(self, program: str, wait_ms: int) -> None:
        self.tell(events.PrepareAsked(program, SPEC, wait_ms))

    @rule(pick=st.integers(0, 5), starts=st.booleans())
    def exec(self, pick: int, starts: bool) -> None:
        resource = self.ledger.books.resources
        running = [
            ref
            for kind, ref in self.here
            if kind is Kind.CONTAINER
            and not any(
                r.target == ref and r.state in (State.PAUSED, State.STOPPED)
                for r in resource.values()
            )
            and not any(isinstance(w, actions.Do) and w.step is Step.FREEZE for w in self.work)
        ]
        if not running:
            return
        ref = running[pick % len(running)]
        if starts:
            self.execs.add(ref)
            self.tell(events.ExecStarted(ref, "e"))
        else:
            self.execs.discard(ref)
            self.tell(events.ExecEnded(ref, "e"))

    @rule(stranger=st.booleans())
    def image_comes(self, stranger: bool) -> None:
        if SPEC.image not in self.images:
            if stranger:
                self.images[SPEC.image] = True
            else:
                self.tell(events.ImageWanted(SPEC.image))

    @rule()
    def disk_fills(self) -> None:
        self.tell(events.EvictionPlanned((SPEC.image,)))

    @rule(pressed=st.booleans())
    def disk_pressure(self, pressed: bool) -> None:
        self.tell(events.Pressed(pressed))

    @rule()
    def engine_dies(self) -> None:
        self.tell(events.EngineDown("killed"))

    @rule()
    def engine_lists(self) -> None:
        self.tell(events.Relisted(self.now_ms, tuple(self.here.values())))

    @rule()
    def router_is_killed(self) -> None:
        """All work in flight is lost; whether it had its effect, nobody knows."""
        self.work.clear()
        self.ledger = Ledger(SETTINGS, random.Random(self.count))
        self.carry_on(self.ledger.load(list(self.journal.values()), self.now_ms))
        self.tell(events.Relisted(self.now_ms, tuple(self.here.values())))

    @rule(
        pick=st.integers(0, 20),
        fate=st.sampled_from(["works", "works", "fails", "lost", "worked, but the answer is lost"]),
    )
    def work_ends(self, pick: int, fate: str) -> None:
        if self.work:
            self.finish(self.work.pop(pick % len(self.work)), fate)

    @rule(steps=st.integers(1, 8))
    def all_goes_well(self, steps: int) -> None:
        for _ in range(steps):
            if self.work:
                self.finish(self.work.pop(0), "works")

    def finish(self, work: Work, fate: str) -> None:
        match work:
            case actions.Do(target=target, step=step):
                ended = Ended(target.key, step, Outcome.UNREACHABLE, "lost")
                if fate.startswith("work"):
                    done = self.effect(target, step)
                    ended = done if fate == "works" else ended
                elif fate == "fails":
                    ended = replace(ended, outcome=Outcome.RETRY)
                self.tell(ended)
            case actions.RunHook(hook=hook):
                self.tell(Ended(hook.key, Step.REMOVE, Outcome.DONE))
            case actions.Look(owner=owner, kind=kind, ref=ref, claim=claim):
                sighting = self.here.get((kind, ref))
                answered = not fate.startswith("lost")
                self.tell(
                    events.Found(
                        owner, kind, ref, sighting if answered else None, claim, answered=answered
                    )
                )
            case actions.Sweep(owner=owner):
                for sighting in list(self.here.values()):
                    if sighting.labels.get(labels.PROGRAM) == owner.program:
                        self.tell(events.Sighted(sighting))
            case actions.Recheck(owner=owner, reason=reason, asked_ms=asked_ms):
                alive = any(
                    resource.target in self.execs for resource in self.ledger.books.owned(owner)
                )
                self.tell(events.Checked(owner, reason, asked_ms, alive))

    def effect(self, target: Resource | Image, step: Step) -> Ended:
        """Does to the world what the step asks, as the shell would."""
        done = Ended(target.key, step, Outcome.DONE)
        if isinstance(target, Image):
            match step:
                case Step.LOCATE if target.ref not in self.images:
                    return replace(done, outcome=Outcome.MISSING)
                case Step.LOCATE:
                    return replace(done, id=f"sha256:{target.ref}")
                case Step.PULL:
                    found = target.ref in self.images
                    self.images.setdefault(target.ref, False)
                    return replace(done, id=f"sha256:{target.ref}", found=found)
                case _:
                    self.images.pop(target.ref, None)
                    return done
        match step:
            case Step.REMOVE:
                if going := self.find(target):
                    del self.here[going.kind, going.ref]
                    self.execs.discard(going.ref)
            case Step.CREATE:
                if SPEC.image not in self.images:
                    return replace(done, outcome=Outcome.MISSING)
                if left_over := self.find(target):
                    del self.here[left_over.kind, left_over.ref]
                ref = self.name()
                owner = target.owner
                stamped = labels.object_labels("mine", owner.program, owner.generation, "e")
                self.here[Kind.CONTAINER, ref] = Sighting(
                    Kind.CONTAINER, ref, stamped, self.now_ms, name=target.ref, running=True
                )
                return replace(done, id=ref)
            case Step.FREEZE if target.target in self.execs:
                return replace(done, outcome=Outcome.REFUSED)
            case Step.FREEZE | Step.THAW | Step.START | Step.INIT | Step.PROBE:
                if self.find(target) is None:
                    return replace(done, outcome=Outcome.MISSING)
        return done

    def find(self, resource: Resource) -> Sighting | None:
        for (kind, ref), sighting in self.here.items():
            names = (resource.ref, resource.alias)
            if kind is resource.kind and (ref in names or sighting.name in names):
                return sighting
        return None

    # === what must hold ===

    @invariant()
    def promises_hold(self) -> None:
        books = self.ledger.books
        books.check()
        assert self.bystanders <= self.here.keys()
        assert "default" not in {resource.owner.program for resource in books.resources.values()}
        kept = {key: r for (table, key), r in self.journal.items() if table == "resources"}
        assert kept == books.resources, "the journal can rebuild the books"
        at_work = {self.key(work) for work in self.work} - {None}
        assert {key for key in books.flying if not key.startswith("program:")} == at_work

    def teardown(self) -> None:
        """Once all programs are over and the engine is well, nothing of theirs is left."""
        self.tell(events.Pressed(False))
        for program in ("a", "b", "c"):
            self.tell(events.Requested(program))
            self.tell(events.Released(program))
        for _ in range(60):
            while self.work:
                self.finish(self.work.pop(0), "works")
            self.now_ms += 61_000
            self.tell(events.Relisted(self.now_ms, tuple(self.here.values())))
            if not self.ledger.books.resources and not self.work:
                break
        assert self.ledger.books.resources == {}
        ours = [
            sighting
            for sighting in self.here.values()
            if sighting.labels.get(labels.PROGRAM) in ("a", "b", "c")
            and not labels.out_of_bounds(sighting.labels, "mine")
        ]
        assert ours == []
        assert self.bystanders <= self.here.keys()
        image = self.ledger.books.images.get(SPEC.image)
        if image is not None and image.state is Freshness.PRESENT and image.ours:
            assert self.images.get(SPEC.image) is False


World.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestWorld = World.TestCase


def test_what_is_thawed_is_asked_for_with_its_record_as_it_is_kept() -> None:
    world = World()
    world.engine_comes_up()
    world.prepare(program="a", wait_ms=0)
    world.all_goes_well(steps=6)
    world.pause(program="a", waiting=True)
    world.all_goes_well(steps=1)
    world.restore(program="a")  # its first use too: both change the record
    (thaw,) = (work for work in world.work if isinstance(work, actions.Do))
    assert thaw.step is Step.THAW
    assert thaw.target == world.journal["resources", world.key(thaw) or ""]
    world.teardown()
