"""The ledger's memory: records, the indices over them, and the alarm clock.

`put` and `drop` are the only ways to change a record; both note what the journal must learn. The
topic modules (claims, teardown, lifetimes, preparing, images, freezing) decide; this one only
remembers. It holds no rule of its own, so it can be recounted: see `check`.
"""

import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator

from thunder_router.environment_settings import EnvironmentSettings
from thunder_router.environments.actions import Action, Forget, Keep, Look
from thunder_router.environments.adopt import Claims
from thunder_router.environments.alarms import Alarms
from thunder_router.environments.records import (
    Image,
    Kind,
    Owner,
    Program,
    Resource,
    Sighting,
    State,
)
from thunder_router.errors import InvariantError

__all__ = ["Books"]


class Books:
    """All that the ledger knows.

    Args:
        settings: Limits and rules.
        dice: Where jitter comes from; seeded, so that a run can be replayed.
    """

    def __init__(self, settings: EnvironmentSettings, dice: random.Random) -> None:
        self.settings = settings
        self.dice = dice
        self.claims = Claims(
            settings.router_id, settings.docker.adopt, by_peer=settings.docker.adopt_peer_ip
        )
        self.programs: dict[str, Program] = {}
        self.resources: dict[str, Resource] = {}
        self.images: dict[str, Image] = {}
        self.engine_up = False
        self.engine_error: str | None = "not asked yet"
        self.pressed = False
        self.flying: set[str] = set()
        """Keys with a step or a recheck under way. Not durable: nothing flies after a restart."""
        self.execs: dict[str, dict[str, int]] = {}
        """Running execs by container id: when each began."""
        self.held_by: dict[str, str | None] = {}
        """Program by claim; None once two programs raised it: then it binds neither."""
        self.unclaimed: dict[str, dict[str, Sighting]] = {}
        """Objects that raised a claim which no known program raises, by claim and key."""
        self.asked: dict[str, set[str]] = {}
        """Names that were looked up already, by the program that gave them."""
        self.unanswered: dict[str, list[Look]] = {}
        """Lookups for the engine's return, by the program that gave the names."""
        self.member_of: dict[str, str] = {}
        """Key of the compose project, by the id of a container in it."""
        self.planned: dict[str, None] = {}
        """Environments that nothing was done for yet, oldest first."""
        self.ahead: set[str] = set()
        """Environments under way or ready that their programs have not come to."""
        self.prepare_ms: dict[str, deque[int]] = {}
        """Recent times from planned to ready, by image, of the images last prepared."""
        self.tally: Counter[str] = Counter()
        self.spent_ms: Counter[str] = Counter()
        """Milliseconds that preparing, teardown and tools took, all together."""
        self.not_before_ms = 0
        """Nobody is given up before: after a restart programs get time to show themselves."""
        self._by_owner: dict[Owner, dict[str, None]] = {}
        self._holdings: Counter[str] = Counter()
        self._key_of: dict[tuple[Kind, str], str] = {}
        self._users: dict[str, set[str]] = {}
        self._kept: set[str] = set()
        self._touched: set[str] = set()
        self._alarms = Alarms()
        self._actions: list[Action] = []

    # === records ===

    def put(self, record: Program | Resource | Image) -> None:
        """Stores the record's new version, and has it journaled where it must survive."""
        match record:
            case Program():
                self.programs[record.id] = record
                if not self._worth_keeping(record):
                    return
                self._kept.add(record.id)
            case Resource():
                self._index(record)
            case Image():
                self.images[record.ref] = record
        self._actions.append(Keep(record))

    def touch(self, program: Program) -> None:
        """Stores a version that differs only in signs of life, which need not survive."""
        self.programs[program.id] = program
        self._touched.add(program.id)

    def flush(self) -> None:
        """Journals the signs of life since the last call, of those whose record is kept."""
        for program_id in self._touched & self._kept:
            self._actions.append(Keep(self.programs[program_id]))
        self._touched.clear()

    def leave_peer(self, program: Program) -> None:
        """Gives up the address it called from: the engine will give it to someone else."""
        claim = f"peer:{program.peer}"
        if self.held_by.get(claim) == program.id:
            del self.held_by[claim]

    def drop(self, record: Program | Resource | Image) -> None:
        """Forgets the record, everywhere."""
        match record:
            case Program():
                self.programs.pop(record.id, None)
                for claim in self.claims.of_program(record.id, record.peer):
                    if self.held_by.get(claim) == record.id:
                        del self.held_by[claim]
                if record.id in self._kept:
                    self._kept.discard(record.id)
                    self._actions.append(Forget("programs", record.id))
                self.asked.pop(record.id, None)
                self.unanswered.pop(record.id, None)
                self._touched.discard(record.id)
                self._alarms.forget(f"program:{record.id}")
            case Resource():
                self._unindex(record)
                # Its name may be another's next: whoever gives it again has it looked up again.
                self.asked.pop(record.owner.program, None)
                self._alarms.forget(record.key)
                self._actions.append(Forget("resources", record.key))
            case Image():
                self.images.pop(record.ref, None)
                self._alarms.forget(record.key)
                self._actions.append(Forget("images", record.ref))

    def _worth_keeping(self, program: Program) -> bool:
        # A program without an environment is the scheduler's business, not the journal's.
        return bool(
            program.id in self._kept
            or program.lease_until_ms
            or program.process
            or program.spec
            or self.holds(program.id)
        )

    def _index(self, resource: Resource) -> None:
        before = self.resources.get(resource.key)
        if before is None:
            self._by_owner.setdefault(resource.owner, {})[resource.key] = None
            self._holdings[resource.owner.program] += 1
        self.resources[resource.key] = resource
        self._key_of[resource.kind, resource.ref] = resource.key
        if resource.alias:
            self._key_of[resource.kind, resource.alias] = resource.key
        if resource.spec is not None:
            self._users.setdefault(resource.spec.image, set()).add(resource.key)
        self.ahead.discard(resource.key)
        if resource.state is State.PLANNED:
            self.planned.setdefault(resource.key)
        else:
            self.planned.pop(resource.key, None)
            if resource.spec is not None and not resource.used and not resource.state.leaving:
                self.ahead.add(resource.key)
        program = self.programs.get(resource.owner.program)
        if program is not None and program.id not in self._kept:
            self.put(program)

    def _unindex(self, resource: Resource) -> None:
        self.resources.pop(resource.key, None)
        self.flying.discard(resource.key)
        self.planned.pop(resource.key, None)
        self.ahead.discard(resource.key)
        owned = self._by_owner.get(resource.owner, {})
        owned.pop(resource.key, None)
        if not owned:
            self._by_owner.pop(resource.owner, None)
        self._holdings[resource.owner.program] -= 1
        if not self._holdings[resource.owner.program]:
            del self._holdings[resource.owner.program]
        for name in (resource.ref, resource.alias):
            if name is not None:
                self._key_of.pop((resource.kind, name), None)
                self.execs.pop(name, None)
        if resource.kind is Kind.COMPOSE:
            for container in [c for c, key in self.member_of.items() if key == resource.key]:
                self.left(container)
        if resource.spec is not None:
            users = self._users.get(resource.spec.image, set())
            users.discard(resource.key)
            if not users:
                self._users.pop(resource.spec.image, None)

    def left(self, container: str) -> None:
        """A container of a compose project is no more."""
        if self.member_of.pop(container, None) is not None:
            self.execs.pop(container, None)

    # === looking ===

    def owned(self, owner: Owner) -> list[Resource]:
        """The owner's resources, oldest first."""
        return [self.resources[key] for key in self._by_owner.get(owner, {})]

    def current(self, program: Program) -> list[Resource]:
        """The resources of the program's present generation."""
        return self.owned(Owner(program.id, program.generation))

    def owners(self) -> list[Owner]:
        """Everyone who owns something."""
        return list(self._by_owner)

    def holds(self, program_id: str) -> bool:
        """Whether any generation of the program owns something."""
        return program_id in self._holdings

    def known(self, kind: Kind, ref: str) -> Resource | None:
        """The resource that the engine calls `ref`, by id or name."""
        key = self._key_of.get((kind, ref))
        return None if key is None else self.resources[key]

    def around(self, container: str) -> Resource | None:
        """The resource that is this container, or the compose project that it belongs to."""
        project = self.resources.get(self.member_of.get(container, ""))
        return self.known(Kind.CONTAINER, container) or project

    def users(self, image: str) -> list[Resource]:
        """Resources that are made from the image, or will be: its leases."""
        return [self.resources[key] for key in sorted(self._users.get(image, ()))]

    def busy(self, resource: Resource) -> bool:
        """Whether a tool is running in the container now."""
        return bool(self.execs.get(resource.target) or self.execs.get(resource.ref))

    # === actions and alarms ===

    def ask(self, action: Action) -> None:
        """Adds to what this step asks for."""
        self._actions.append(action)

    def take(self) -> list[Action]:
        """All that was asked for since the last call."""
        actions, self._actions = self._actions, []
        return actions

    def wake(self, at_ms: int, key: str) -> None:
        """Looks at this key again at that time, or before; see `alarms`."""
        self._alarms.set(at_ms, key)

    def due(self, now_ms: int) -> Iterator[str]:
        """Keys whose alarms have gone off."""
        return self._alarms.due(now_ms)

    def next_due_ms(self) -> int | None:
        """When the next alarm goes off."""
        return self._alarms.next_ms()

    # === start and self-check ===

    def load(self, records: Iterable[Program | Resource | Image]) -> None:
        """Takes over what the journal kept; asks nothing of it in return."""
        for record in records:
            if isinstance(record, Program):
                self._kept.add(record.id)
            self.put(record)
        self._actions.clear()

    def check(self) -> None:
        """Recounts the indices from nothing.

        Raises:
            InvariantError: an index and the records disagree.
        """
        by_owner: dict[Owner, set[str]] = {}
        users: dict[str, set[str]] = {}
        for key, resource in self.resources.items():
            by_owner.setdefault(resource.owner, set()).add(key)
            if resource.spec is not None:
                users.setdefault(resource.spec.image, set()).add(key)
            for name in filter(None, (resource.ref, resource.alias)):
                if self._key_of.get((resource.kind, name)) != key:
                    raise InvariantError(f"{name} does not lead to {key}")
            if resource.owner.program not in self.programs:
                raise InvariantError(f"{key} belongs to nobody")
        if Counter(r.owner.program for r in self.resources.values()) != self._holdings:
            raise InvariantError("holdings do not add up")
        if by_owner != {owner: set(keys) for owner, keys in self._by_owner.items()}:
            raise InvariantError("resources by owner do not add up")
        if users != self._users:
            raise InvariantError("image leases do not add up")
