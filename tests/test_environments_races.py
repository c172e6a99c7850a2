"""Releases that race: every interleaving of a few threads of events, each to its end.

Not a sample: all orders in which the events of two agents, their containers and the engine's
answers can reach the ledger. What must hold is the same in all of them: what a program had at its
release goes, what came after it stays, and nothing is asked for twice at once.
"""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from thunder_router.config import EnvironmentSettings
from thunder_router.environments import actions, events, labels
from thunder_router.environments.events import Ended, Outcome, Released, Requested, Sighted, Step
from thunder_router.environments.ledger import Ledger
from thunder_router.environments.records import Kind, Sighting

SETTINGS = EnvironmentSettings(router_id="mine")

Move = Callable[["Race"], None]


class Race:
    """A ledger, the containers on the engine, and the steps that were asked for."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.ledger = Ledger(SETTINGS, random.Random(0))
        self.here: dict[str, Sighting] = {}
        self.work: list[actions.Do] = []
        self.releases: list[int] = []
        self.tell(events.Relisted(self.now_ms, ()))

    def tell(self, event: events.Event) -> None:
        """Each event a millisecond after the one before."""
        self.now_ms += 1
        for action in self.ledger.step(event, self.now_ms):
            match action:
                case actions.Do(step=Step.REMOVE, target=target):
                    assert all(other.target.key != target.key for other in self.work)
                    self.work.append(action)
                case actions.Sweep():
                    for sighting in list(self.here.values()):
                        self.tell(Sighted(sighting))
                case actions.Look(owner=owner, kind=kind, ref=ref, claim=claim):
                    self.tell(events.Found(owner, kind, ref, self.here.get(ref), claim))
                case _:
                    pass

    def settle(self) -> None:
        """Everything asked for works, and the engine is listed, until nothing is left to do."""
        for _ in range(8):
            while self.work:
                works(self)
            self.now_ms += 61_000
            self.tell(events.Relisted(self.now_ms, tuple(self.here.values())))
        self.ledger.books.check()

    def ended(self, outcome: Outcome, *, effect: bool) -> None:
        """The oldest step ends so."""
        if self.work:
            step = self.work.pop(0)
            if effect:
                self.here.pop(step.target.ref, None)
            self.tell(Ended(step.target.key, Step.REMOVE, outcome))


def named(move: Move, name: str) -> Move:
    """For the message of a failure."""
    move.__name__ = name
    return move


def works(race: Race) -> None:
    race.ended(Outcome.DONE, effect=True)


def fails(race: Race) -> None:
    race.ended(Outcome.RETRY, effect=False)


def is_lost(race: Race) -> None:
    race.ended(Outcome.UNREACHABLE, effect=True)


def requests(race: Race) -> None:
    race.tell(Requested("p"))


def releases(race: Race) -> None:
    race.tell(Released("p"))
    race.releases.append(race.now_ms)


def born(name: str) -> Move:
    def move(race: Race) -> None:
        race.now_ms += 1
        race.here[name] = Sighting(
            Kind.CONTAINER, name, {labels.PROGRAM: "p"}, race.now_ms, name=f"n-{name}"
        )

    return named(move, f"born {name}")


def told(name: str) -> Move:
    def move(race: Race) -> None:
        if name in race.here:
            race.tell(Sighted(race.here[name]))

    return named(move, f"told of {name}")


def vanishes(name: str) -> Move:
    """The agent clears up by itself."""

    def move(race: Race) -> None:
        if race.here.pop(name, None) is not None:
            race.tell(events.Vanished(Kind.CONTAINER, name))

    return named(move, f"{name} vanishes")


def interleaved(threads: Sequence[Sequence[Move]]) -> Iterator[list[Move]]:
    """Every merge of the threads that keeps each one's own order."""
    turns = [number for number, thread in enumerate(threads) for _ in thread]
    for order in sorted(set(itertools.permutations(turns))):
        steps = [iter(thread) for thread in threads]
        yield [next(steps[number]) for number in order]


THREADS: dict[str, tuple[list[Move], ...]] = {
    "double": ([requests, born("a"), told("a")], [releases, releases], [works]),
    "concurrent with failures": ([born("a"), told("a")], [releases], [releases], [fails, is_lost]),
    "late news": ([requests, born("a"), born("b")], [told("b"), told("a")], [releases, works]),
    "an agent that clears up": ([requests, born("a"), told("a"), vanishes("a")], [releases, fails]),
    "an id used again": ([requests, born("a"), releases, requests, born("b")], [told("b"), works]),
}


@pytest.mark.parametrize("name", THREADS)
def test_in_every_order_what_was_there_at_the_release_goes_and_what_came_later_stays(
    name: str,
) -> None:
    counted = 0
    for moves in interleaved(THREADS[name]):
        race = Race()
        births: dict[str, int] = {}
        for move in moves:
            move(race)
            births |= {ref: s.created_ms for ref, s in race.here.items()}
        race.settle()
        last = max(race.releases)
        expected = {ref for ref, born_ms in births.items() if born_ms > last} & set(race.here)
        assert set(race.here) == expected, [move.__name__ for move in moves]
        # And all of it goes with the generation that is open now.
        race.tell(Requested("p"))
        race.tell(Released("p"))
        race.settle()
        assert race.here == {}, [move.__name__ for move in moves]
        assert race.ledger.books.resources == {}
        counted += 1
    assert counted >= 15
