"""The page on program names says what the code does: forms, their order, who sees them."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from thunder_router import identity
from thunder_router._core import scan_request
from thunder_router.errors import IdentityConflictError

PAGE = (Path(__file__).parent.parent / "docs/programs.md").read_text()
ROWS = re.findall(r"^\| (header|body) `([a-z_.-]+)` \|[^|]*\| (yes|no)", PAGE, re.MULTILINE)
USER_ID = "metadata.user_id"
EXPLICIT = [form for _, form, _ in ROWS[:2]]


def value_for(form: str, name: str) -> str:
    """Claude Code's own form where a plain value would be a user."""
    return json.dumps({"session_id": name}) if form == USER_ID else name


def request(*said: tuple[str, str, str]) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """A body and headers that name programs in these places: kind, form, name."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello."}]}
    headers = []
    for kind, form, name in said:
        if kind == "header":
            headers.append((form.encode(), name.encode()))
            continue
        *containers, last = form.split(".")
        place = body
        for container in containers:
            place = place.setdefault(container, {})
        place[last] = value_for(form, name)
    return json.dumps(body).encode(), headers


def named(*said: tuple[str, str, str]) -> identity.Identity:
    body, headers = request(*said)
    return identity.name(scan_request(body, "chat").identity, headers)


def test_the_page_has_every_form() -> None:
    """Whatever names a program by itself is on the page."""
    documented = {form for _, form, _ in ROWS}
    forms = {*identity._BODY_FORMS, *identity._HEADER_FORMS, *identity._EXPLICIT_HEADERS}
    assert documented == forms
    assert len(ROWS) == len(documented)


@pytest.mark.parametrize(("kind", "form", "_seen"), ROWS, ids=[form for _, form, _ in ROWS])
def test_a_form_names_the_program(kind: str, form: str, _seen: str) -> None:
    who = named((kind, form, "a-program"))
    assert (who.program, who.source) == ("a-program", f"{kind}:{form}")


NEIGHBOURS = [(upper, lower) for upper, lower in pairwise(ROWS) if upper[1] not in EXPLICIT]


@pytest.mark.parametrize(("upper", "lower"), NEIGHBOURS, ids=lambda row: row[1])
def test_a_form_wins_over_the_one_below_it(
    upper: tuple[str, str, str], lower: tuple[str, str, str]
) -> None:
    kind, form, _ = upper
    assert named((kind, form, "same"), (*lower[:2], "same")).source == f"{kind}:{form}"


@pytest.mark.parametrize("header", EXPLICIT)
@pytest.mark.parametrize("row", ROWS[2:], ids=lambda row: row[1])
def test_a_program_header_wins_or_contradicts(header: str, row: tuple[str, str, str]) -> None:
    kind, form, _ = row
    said = ("header", header, "one"), (kind, form, "another")
    if kind == "body" and form != USER_ID:
        with pytest.raises(IdentityConflictError):
            named(*said)
    else:
        assert named(*said).program == "one"


@pytest.mark.parametrize("row", [r for r in ROWS if r[0] == "body"], ids=lambda r: r[1])
def test_the_worker_sees_a_body_form_or_does_not_as_the_page_says(row: tuple[str, ...]) -> None:
    kind, form, seen = row
    body, _ = request((kind, form, "a-program"))
    sent = b"".join(scan_request(body, "chat").forward(body, include_usage=False))
    assert (b"a-program" in sent) == (seen == "yes")
    assert json.loads(sent)["messages"] == json.loads(body)["messages"]
