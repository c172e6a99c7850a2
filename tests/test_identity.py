"""Which program a request belongs to, form by form."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thunder_router.errors import IdentityConflictError
from thunder_router.identity import NOBODY, Identity, WeakHint, clean, name

SESSION = "57a121ec-f78c-48c3-a745-e3036a3ecc33"
LEGACY_USER = f"user_{'ab' * 32}_account__session_{SESSION}"
JSON_USER = json.dumps({"device_id": "d", "account_uuid": "", "session_id": SESSION})

BODY_FORMS = [
    "program_id",
    "extra_body.program_id",
    "nvext.agent_context.session_id",
    "nvext.agent_context.trajectory_id",
    "vllm_xargs.agentic_context.program_id",
    "vllm_xargs.agentic_context.session_id",
    "agent_hint.session_id",
    "job_id",
    "session_id",
    "session_params.id",
    "metadata.program_id",
    "metadata.session_id",
]
HEADER_FORMS = [
    "x-thunder-program-id",
    "x-program-id",
    "x-dynamo-session-id",
    "x-smg-routing-key",
    "x-session-id",
    "x-session-affinity",
    "x-litellm-session-id",
    "session-id",
    "thread-id",
    "x-claude-code-session-id",
]


def headers(**values: str) -> list[tuple[bytes, bytes]]:
    return [(key.replace("_", "-").encode(), value.encode()) for key, value in values.items()]


@pytest.mark.parametrize("form", BODY_FORMS)
def test_each_body_form_names_the_program(form: str) -> None:
    found = name([("model", "m"), (form, " run-7 ")], [])
    assert (found.program, found.source) == ("run-7", f"body:{form}")


@pytest.mark.parametrize("form", HEADER_FORMS)
def test_each_header_form_names_the_program(form: str) -> None:
    found = name([], [(b"accept", b"*/*"), (form.encode(), b" run-7 ")])
    assert (found.program, found.source) == ("run-7", f"header:{form}")


@pytest.mark.parametrize("forms", [BODY_FORMS, HEADER_FORMS], ids=["body", "headers"])
def test_the_earlier_form_of_a_kind_wins(forms: list[str]) -> None:
    body = forms is BODY_FORMS
    loose = forms if body else forms[2:-3]
    for first, second in itertools.pairwise(loose):
        pairs = [(second, "late"), (first, "early")]
        found = name(pairs, []) if body else name([], [(k.encode(), v.encode()) for k, v in pairs])
        assert found.program == "early", (first, second)


@pytest.mark.parametrize("body", BODY_FORMS)
@pytest.mark.parametrize("header", HEADER_FORMS[2:])
def test_the_body_wins_over_session_headers(body: str, header: str) -> None:
    assert name([(body, "b")], [(header.encode(), b"h")]).program == "b"


@pytest.mark.parametrize("body", BODY_FORMS)
@pytest.mark.parametrize("header", HEADER_FORMS[:2])
def test_an_explicit_header_must_agree_with_the_body(body: str, header: str) -> None:
    assert name([(body, "same")], [(header.encode(), b" same")]).program == "same"
    with pytest.raises(IdentityConflictError, match=r"'h'.*'b'"):
        name([(body, "b")], [(header.encode(), b"h")])


def test_the_two_explicit_headers_must_agree() -> None:
    with pytest.raises(IdentityConflictError):
        name([], headers(x_thunder_program_id="a", x_program_id="b"))
    with pytest.raises(IdentityConflictError):
        name([], [(b"x-program-id", b"a"), (b"x-program-id", b"b")])
    assert name([], [(b"x-program-id", b"a"), (b"x-program-id", b"a")]).program == "a"


def test_an_explicit_header_overrules_what_claude_code_fills_in_by_itself() -> None:
    found = name([("metadata.user_id", LEGACY_USER)], headers(x_thunder_program_id="mine"))
    assert (found.program, found.source) == ("mine", "header:x-thunder-program-id")


@pytest.mark.parametrize(
    "bad",
    ["", "   ", "a\nb", "a\x00", "\x7f", "x" * 257, "é" * 129, "\ud800"],
    ids=["empty", "blank", "newline", "nul", "del", "long", "long in bytes", "surrogate"],
)
def test_an_unusable_value_names_nobody_and_the_next_form_is_asked(bad: str) -> None:
    assert name([("program_id", bad)], []) == Identity()
    assert name([("program_id", bad), ("session_id", "ok")], []).program == "ok"
    assert name([("program_id", bad)], headers(x_program_id="ok")).program == "ok"


def test_header_bytes_that_are_not_utf8_name_nobody() -> None:
    assert name([], [(b"x-program-id", b"\xff\xfe")]) == NOBODY
    assert name([], [(b"x-program-id", "überlauf".encode())]).program == "überlauf"


def test_a_name_of_exactly_256_bytes_is_usable() -> None:
    assert name([("program_id", "x" * 256)], []).program == "x" * 256
    assert name([("program_id", "é" * 128)], []).program == "é" * 128


@pytest.mark.parametrize("user", [LEGACY_USER, JSON_USER], ids=["legacy", "json"])
def test_claude_code_is_known_by_the_session_in_its_user_id(user: str) -> None:
    found = name([("metadata.user_id", user)], [])
    assert found == Identity(SESSION, SESSION, None, False, "body:metadata.user_id")


@pytest.mark.parametrize(
    "user",
    [
        "alice",
        "user_alice",
        "{",
        "{}",
        "[1]",
        '{"session_id": 5}',
        '{"session_id": " "}',
        "[" * 9999,
    ],
)
def test_a_mere_user_id_is_no_program(user: str) -> None:
    assert name([("metadata.user_id", user)], []).program is None


@pytest.mark.parametrize(
    ("fields", "said", "program", "parent"),
    [
        ([], {"x_claude_code_session_id": "S"}, "S", None),
        ([], {"x_claude_code_session_id": "S", "x_claude_code_agent_id": "A"}, "S:A", "S"),
        (
            [],
            {
                "x_claude_code_session_id": "S",
                "x_claude_code_agent_id": "B",
                "x_claude_code_parent_agent_id": "A",
            },
            "S:B",
            "S:A",
        ),
        (
            [("metadata.user_id", '{"session_id":"S"}')],
            {"x_claude_code_session_id": "S", "x_claude_code_agent_id": "A"},
            "S:A",
            "S",
        ),
        ([], {"session_id": "ignored", "x_claude_code_agent_id": "A"}, "ignored", None),
        ([], {"session_id": "S", "thread_id": "S"}, "S", None),
        ([], {"session_id": "S", "thread_id": "T"}, "S:T", "S"),
        (
            [],
            {"session_id": "S", "thread_id": "U", "x_codex_parent_thread_id": "T"},
            "S:U",
            "S:T",
        ),
        (
            [],
            {"session_id": "S", "thread_id": "T", "x_codex_parent_thread_id": "S"},
            "S:T",
            "S",
        ),
    ],
)
def test_a_sub_agent_is_a_program_of_its_own_grouped_under_its_session(
    fields: list[tuple[str, str]], said: dict[str, str], program: str, parent: str | None
) -> None:
    found = name(fields, headers(**said))
    assert (found.program, found.parent) == (program, parent)
    assert found.group == program.split(":")[0]


def test_a_sub_agent_never_shares_its_sessions_name_even_when_its_own_is_too_long() -> None:
    found = name([], headers(x_claude_code_session_id="s" * 200, x_claude_code_agent_id="a" * 200))
    assert found.program is None


@pytest.mark.parametrize(
    "form", ["parent_program_id", "parent_session_id", "nvext.agent_context.parent_trajectory_id"]
)
def test_parents_group_their_programs(form: str) -> None:
    found = name([("program_id", "child"), (form, "root")], [])
    assert (found.program, found.parent, found.group) == ("child", "root", "root")


def test_a_group_header_names_the_group() -> None:
    found = name([("program_id", "p")], headers(x_thunder_group_id="g", x_parent_session_id="q"))
    assert (found.group, found.parent) == ("g", "q")


def test_final_signals_come_from_body_or_header() -> None:
    assert name([("program_id", "p")], [], final=True).final
    assert name([], [], final=True) == Identity(final=True)
    assert name([], headers(x_dynamo_session_final="True")).final
    assert not name([], headers(x_dynamo_session_final="false")).final


def test_no_name_is_no_program() -> None:
    assert name([], [(b"authorization", b"Bearer k"), (b"user-agent", b"x")]).program is None
    assert name([("user", "u"), ("prompt_cache_key", "k")], []).program is None


def test_weak_hints_are_opt_in_and_never_show_a_token() -> None:
    said = [(b"authorization", b"Bearer secret-token")]
    assert name([("user", "u")], said, weak_hints=("user", "bearer")).program == "u"
    found = name([], said, weak_hints=("user", "bearer"))
    assert found.program is not None
    assert found.program.startswith("key-")
    assert "secret" not in repr(found)
    hints: list[WeakHint] = ["user"]
    assert name([("session_id", "s"), ("user", "u")], [], weak_hints=hints).program == "s"


@given(st.lists(st.tuples(st.sampled_from([*BODY_FORMS, "metadata.user_id", "user"]), st.text())))
def test_any_body_gives_a_usable_name_or_none(fields: list[tuple[str, str]]) -> None:
    found = name(fields, [])
    if found.program is not None:
        assert clean(found.program) == found.program
        assert 0 < len(found.program.encode()) <= 256


@given(st.lists(st.tuples(st.sampled_from(HEADER_FORMS), st.binary(max_size=300))))
def test_any_headers_give_a_name_none_or_a_conflict(said: list[tuple[str, bytes]]) -> None:
    try:
        found = name([], [(key.encode(), value) for key, value in said])
    except IdentityConflictError:
        return
    assert found.program is None or clean(found.program) == found.program
