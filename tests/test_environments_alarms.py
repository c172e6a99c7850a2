"""The alarm clock against the simplest one: a dictionary of the earliest time by key."""

from hypothesis import given
from hypothesis import strategies as st

from thunder_router.environments.alarms import Alarms

KEYS = st.sampled_from("abc")
TIMES = st.integers(0, 20)
SET = st.tuples(st.just("set"), TIMES, KEYS)
FORGET = st.tuples(st.just("forget"), st.just(0), KEYS)
DUE = st.tuples(st.just("due"), TIMES, st.just(""))


@given(st.lists(st.one_of(SET, FORGET, DUE), max_size=60))
def test_every_key_comes_due_once_at_the_earliest_time_that_anyone_asked_for(
    history: list[tuple[str, int, str]],
) -> None:
    alarms, model = Alarms(), dict[str, int]()
    for what, at_ms, key in history:
        match what:
            case "set":
                alarms.set(at_ms, key)
                model[key] = min(at_ms, model.get(key, at_ms))
            case "forget":
                alarms.forget(key)
                model.pop(key, None)
            case _:
                expected = sorted((t, k) for k, t in model.items() if t <= at_ms)
                assert list(alarms.due(at_ms)) == [key for _, key in expected]
                model = {k: t for k, t in model.items() if t > at_ms}
        assert alarms.next_ms() == min(model.values(), default=None)
        assert len(alarms) == len(model)


def test_asking_again_for_a_later_time_costs_nothing() -> None:
    alarms = Alarms()
    for at_ms in range(1000):
        alarms.set(at_ms, "a")
    assert len(alarms._heap) == 1
