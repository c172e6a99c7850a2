"""Whom a request is accounted to, and what that does to who goes first."""

from dataclasses import replace

import pytest

from test_driver import House, request
from thunder_router.config import FairnessSettings
from thunder_router.scheduling.recorder import Record, Recorder
from thunder_router.scheduling.tenancy import Tenancy, Tenant, key_name

KEY = "key-2bb80d537b1da3e3"
"""The first 16 hexadecimal digits of SHA-256 of `secret`."""


def test_without_a_setting_nobody_is_a_tenant() -> None:
    assert Tenancy(FairnessSettings()).of([(b"authorization", b"Bearer secret")], "g") is None


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer secret"),
        (b"authorization", b"bearer  secret "),
        (b"x-api-key", b"secret"),
    ],
)
def test_a_key_is_named_by_its_digest_wherever_it_stands(header: tuple[bytes, bytes]) -> None:
    tenancy = Tenancy(FairnessSettings(by="key", weights={KEY: 3}))
    assert tenancy.of([(b"accept", b"*/*"), header], None) == Tenant(KEY, 3)
    assert tenancy.of([(b"accept", b"*/*")], None) is None
    assert key_name(b"another") != KEY


def test_a_header_or_a_group_names_the_tenant() -> None:
    by_header = Tenancy(FairnessSettings(by="header", header="X-Team", weights={"blue": 2}))
    assert by_header.of([(b"x-team", b" blue ")], "g") == Tenant("blue", 2)
    assert by_header.of([(b"x-team", b"red")], "g") == Tenant("red", 1)
    assert by_header.of([(b"x-team", b"a\x00b")], "g") is None
    assert by_header.of([], "g") is None
    by_group = Tenancy(FairnessSettings(by="group", weights={"g": 5}))
    assert by_group.of([], "g") == Tenant("g", 5)
    assert by_group.of([], None) is None


def test_room_is_shared_by_weight_and_the_journal_says_whose_it_was() -> None:
    records: list[Record] = []
    tenancy = Tenancy(FairnessSettings(by="header", weights={"heavy": 3}))
    house = House(
        lambda core: Recorder(core, records.append),
        driver={"tenancy": tenancy},
        policy="adaptive",
        margin_min=0,
        growth_steps_new=0,
        growth_steps_paused=0,
        mark_running_above=1,
    )
    house.up(tokens=1_000)
    first = house.arrive("first", 1_000)

    def ask(tenant: str, number: int) -> None:
        said = request(f"{tenant}-{number}", 50)
        headers = [(b"x-thunder-tenant", tenant.encode())]
        house.driver.arrive(replace(said, headers=headers))

    for number in range(20):
        ask("light", number)
    for number in range(20):
        ask("heavy", number)
    first.cancelled()
    house.driver.release("first")
    house.clock.advance()
    [pool] = house.driver.pools
    views = {view.tenant: view for view in pool.look()[0].tenants()}
    assert (views["heavy"].charged_tokens, views["light"].charged_tokens) == (750, 250)
    assert (views["heavy"].waiting, views["light"].waiting) == (5, 15)
    arrived = [record[2] for record in records if record[1] == "arrive"]
    assert isinstance(arrived[0], dict)
    assert "tenant" not in arrived[0]
    assert isinstance(arrived[-1], dict)
    assert (arrived[-1]["tenant"], arrived[-1]["weight"]) == ("heavy", 3)
    view = pool.look()[0].program("heavy-19", 0)
    assert view is not None
    assert view.tenant == "heavy"
    ask("late", 0)
    ask("light", 20)
    assert pool.why_held("light-20") == (
        "held: its tenant occupies 250 at weight 1, one with 0 at weight 1 goes first"
    )
