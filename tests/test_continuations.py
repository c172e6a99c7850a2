"""Programs that are named by the answers that they continue."""

from test_driver import Arrival, Facts, House
from thunder_router.scheduling.continuations import Continuations
from thunder_router.scheduling.ticket import Ticket


def answered(ticket: Ticket, response_id: str | None) -> None:
    ticket.finished(
        prompt_tokens=100,
        completion_tokens=10,
        cached_tokens=None,
        cached_host_tokens=None,
        tools=(),
        response_id=response_id,
    )


def following(house: House, previous: str, program: str | None = None) -> Ticket:
    named = () if program is None else (("program_id", program),)
    said = (*named, ("previous_response_id", previous))
    return house.driver.arrive(Arrival(Facts(identity=said)))


def test_who_continues_an_answer_is_whoever_got_it() -> None:
    house = House(driver={"weak_hints": ("previous_response_id",)})
    house.up()
    answered(house.arrive("p"), "resp_1")
    second = following(house, "resp_1")
    assert second.program == "p"
    answered(second, "resp_2")
    assert following(house, "resp_2").program == "p"
    assert following(house, "resp_1").program == "p", "a branch of the same conversation"
    assert following(house, "resp_2", "other").program == "other", "a name says more"
    assert following(house, "resp_9").program is None


def test_a_conversation_without_a_name_is_called_by_its_first_answer() -> None:
    house = House(driver={"weak_hints": ("previous_response_id",)})
    house.up()
    first = house.arrive()
    assert first.program is None
    answered(first, "resp_1")
    second = following(house, "resp_1")
    assert second.program == "resp_1"
    answered(second, "resp_2")
    assert following(house, "resp_2").program == "resp_1"


def test_it_is_opt_in_and_an_answer_without_an_id_is_nobodys() -> None:
    house = House()
    house.up()
    answered(house.arrive("p"), "resp_1")
    assert following(house, "resp_1").program is None
    asking = House(driver={"weak_hints": ("previous_response_id",)})
    asking.up()
    answered(asking.arrive("p"), None)
    assert following(asking, "resp_1").program is None


def test_only_so_many_answers_are_remembered_the_latest() -> None:
    known = Continuations(most=3)
    for number in range(5):
        known.answered(f"resp_{number}", f"p{number}")
    assert dict(known) == {"resp_2": "p2", "resp_3": "p3", "resp_4": "p4"}
    known.answered("resp_2", "p2")
    known.answered("resp_5", None)
    assert list(known) == ["resp_4", "resp_2", "resp_5"]
