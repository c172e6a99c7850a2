"""Which program is this request? A pure function from what the client sent to a name, or to none.

Theory of operation. Agents already say who they are, each in its own dialect: a body field, a
header, a session buried in `metadata.user_id`. Every form names the same thing, a program, so they
are read in one fixed order and the first usable one wins. Three rules keep that safe:

* A value is a non-blank string of at most 256 bytes without control characters, trimmed. Anything
  else names nobody, and the next form is asked.
* An explicit program header must agree with whatever names the program in the body; two
  contradicting names are the client's error, not a guess of ours.
* Without a name there is no program. Nobody is ever put into a shared default one.

A coding agent's sub-agents are programs of their own (they have their own context, so their own
KV cache), called `session:agent` and grouped under their session.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from thunder_router.errors import IdentityConflictError

__all__ = ["NOBODY", "Identity", "WeakHint", "clean", "name"]

WeakHint = Literal["prompt_cache_key", "user", "previous_response_id", "bearer"]

MAX_BYTES: Final = 256
"""Longest program name, in UTF-8 bytes: long enough for every client seen, short enough to log."""

_BODY_FORMS: Final = (
    "program_id",
    "extra_body.program_id",
    "nvext.agent_context.session_id",
    "nvext.agent_context.trajectory_id",
    "vllm_xargs.agentic_context.program_id",
    "vllm_xargs.agentic_context.session_id",
    "agent_hint.session_id",
    "job_id",
    "extra_body.job_id",
    "session_id",
    "extra_body.session_id",
    "session_params.id",
    "metadata.program_id",
    "metadata.session_id",
    "metadata.user_id",
)
_EXPLICIT_HEADERS: Final = ("x-thunder-program-id", "x-program-id")
_HEADER_FORMS: Final = (
    "x-dynamo-session-id",
    "x-smg-routing-key",
    "x-session-id",
    "x-session-affinity",
    "x-litellm-session-id",
    "session-id",
    "thread-id",
    "x-claude-code-session-id",
)
_BODY_PARENTS: Final = (
    "parent_program_id",
    "parent_session_id",
    "extra_body.parent_program_id",
    "extra_body.parent_session_id",
    "nvext.agent_context.parent_session_id",
    "nvext.agent_context.parent_trajectory_id",
    "vllm_xargs.agentic_context.parent_program_id",
    "vllm_xargs.agentic_context.parent_session_id",
    "agent_hint.parent_session_id",
)
_HEADER_PARENTS: Final = (
    "x-thunder-parent-program-id",
    "x-dynamo-parent-session-id",
    "x-parent-session-id",
)
_GROUP_HEADER: Final = "x-thunder-group-id"
_FINAL_HEADER: Final = "x-dynamo-session-final"

_SUB_AGENTS: Final = {
    "metadata.user_id": ("x-claude-code-agent-id", "x-claude-code-parent-agent-id"),
    "x-claude-code-session-id": ("x-claude-code-agent-id", "x-claude-code-parent-agent-id"),
    "session-id": ("thread-id", "x-codex-parent-thread-id"),
}
"""Session form → headers naming the agent within that session, and that agent's parent."""

_BODY_RANK: Final = {form: rank for rank, form in enumerate(_BODY_FORMS)}
_HEADER_RANK: Final = {form: rank for rank, form in enumerate(_HEADER_FORMS)}
_PARENT_RANK: Final = {form: rank for rank, form in enumerate((*_BODY_PARENTS, *_HEADER_PARENTS))}

_KNOWN_HEADERS: Final = {
    header.encode(): header
    for header in (
        *_EXPLICIT_HEADERS,
        *_HEADER_FORMS,
        *_HEADER_PARENTS,
        *(name for pair in _SUB_AGENTS.values() for name in pair),
        _GROUP_HEADER,
        _FINAL_HEADER,
        "authorization",
    )
}

_NO_ANSWERS: Final[Mapping[str, str]] = MappingProxyType({})
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CLAUDE_USER: Final = re.compile(r"^user_.*_session_([0-9A-Za-z-]+)$", re.DOTALL)


class Identity(NamedTuple):
    """Who a request belongs to.

    Attributes:
        program: The program's name, or None: the request is then accounted for alone.
        group: What the program belongs to (a session, an RL group), for grouping and fairness.
        parent: The program that started this one, where the client said so.
        final: The program ends with this request.
        source: Where the name was found (`body:program_id`, `header:x-session-id`), or None.
    """

    program: str | None = None
    group: str | None = None
    parent: str | None = None
    final: bool = False
    source: str | None = None


NOBODY: Final = Identity()
"""A request that names no program."""


def name(
    fields: Iterable[tuple[str, str]],
    headers: Iterable[tuple[bytes, bytes]],
    *,
    final: bool = False,
    weak_hints: Collection[WeakHint] = (),
    answers: Mapping[str, str] = _NO_ANSWERS,
) -> Identity:
    """Names the program of one request.

    Args:
        fields: Identity fields of the body, dotted path and value, as the body scan found them.
        headers: Request headers, names in lower case, as ASGI has them.
        final: The body carries a final signal.
        weak_hints: Opt-in forms that name a user or a conversation rather than a program.
        answers: Programs by the ids of answers that they got, for `previous_response_id`.

    Raises:
        IdentityConflictError: an explicit program header contradicts the body or its twin.
    """
    body: dict[str, str] = {}
    for path, value in fields:
        body.setdefault(path, value)
    said = _read_headers(headers)
    if not body and not said:
        return Identity(final=True) if final else NOBODY

    explicit = _explicit(said)
    form, program = _first(body, _BODY_RANK)
    source = f"body:{form}"
    if explicit is not None:
        where, wanted = explicit
        # Claude Code fills `metadata.user_id` on its own: its operator cannot make the two agree.
        if program is None or form == "metadata.user_id":
            form, program, source = where, wanted, f"header:{where}"
        elif program != wanted:
            raise IdentityConflictError(
                f"{where} names program {wanted!r}, but {form} in the body names {program!r}"
            )
    if program is None:
        form, program = _first(said, _HEADER_RANK)
        source = f"header:{form}"
    if program is None and weak_hints:
        form, program, source = _weak(body, said, weak_hints, answers)

    if program is not None and len(body) + len(said) == 1 and form not in _SUB_AGENTS:
        return Identity(program, final=final, source=source)  # as mostly: nothing else was said

    group = _clean_or_none(said.get(_GROUP_HEADER))
    parent = _first(body, _PARENT_RANK)[1] or _first(said, _PARENT_RANK)[1]
    if program is not None and form in _SUB_AGENTS:
        session = program
        program, parent_agent = _sub_agent(session, form, said)
        parent = parent_agent or parent
        group = group or session
    return Identity(
        program=program,
        group=group or parent,
        parent=parent,
        final=final or (_FINAL_HEADER in said and _affirms(said[_FINAL_HEADER])),
        source=source if program is not None else None,
    )


def clean(value: str) -> str | None:
    """The usable form of a name, or None: trimmed, not blank, not too long, no control characters.

    Lone surrogates, which JSON escapes can smuggle in, are refused too: they have no UTF-8 form.
    """
    trimmed = value.strip()
    if trimmed.isascii() and trimmed.isprintable():
        return trimmed if 0 < len(trimmed) <= MAX_BYTES else None
    if _CONTROL.search(trimmed) is not None:
        return None
    try:
        return trimmed if len(trimmed.encode()) <= MAX_BYTES else None
    except UnicodeEncodeError:
        return None


def _read_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers that can matter. Bytes that are not UTF-8 name nobody."""
    said: dict[str, str] = {}
    for raw, value in headers:
        header = _KNOWN_HEADERS.get(raw)
        if header is None:
            continue
        try:
            text = value.decode()
        except UnicodeDecodeError:
            continue
        if said.setdefault(header, text) != text and header in _EXPLICIT_HEADERS:
            raise IdentityConflictError(f"{header} is given twice with different values")
    return said


def _explicit(said: dict[str, str]) -> tuple[str, str] | None:
    """The program header, if any: the two spellings must agree."""
    if said.keys().isdisjoint(_EXPLICIT_HEADERS):
        return None
    found = [
        (header, value)
        for header in _EXPLICIT_HEADERS
        if (value := _clean_or_none(said.get(header))) is not None
    ]
    if len(found) == 2 and found[0][1] != found[1][1]:
        raise IdentityConflictError(
            f"{found[0][0]} names program {found[0][1]!r}, {found[1][0]} names {found[1][1]!r}"
        )
    return found[0] if found else None


def _first(values: dict[str, str], ranks: dict[str, int]) -> tuple[str, str | None]:
    """The first form with a usable value. Few are ever present, so those are walked, not all."""
    if not values:
        return "", None
    present = [form for form in values if form in ranks]
    if len(present) > 1:
        present.sort(key=ranks.__getitem__)
    for form in present:
        raw = values[form]
        value = _claude_session(raw) if form == "metadata.user_id" else clean(raw)
        if value is not None:
            return form, value
    return "", None


def _affirms(value: str) -> bool:
    return value.strip().lower() in ("1", "true")


def _clean_or_none(value: str | None) -> str | None:
    return None if value is None else clean(value)


def _claude_session(user_id: str) -> str | None:
    """The session in Anthropic's `metadata.user_id` as Claude Code fills it, else None.

    Others put a user there, and a user is no program.

    Source: Claude Code below 2.1.78 sends `user_<hash>_account_<uuid>_session_<uuid>`, later ones
    a JSON object with a `session_id`.
    """
    match = _CLAUDE_USER.match(user_id)
    if match is not None:
        return clean(match[1])
    if not user_id.startswith("{"):
        return None
    try:
        session = json.loads(user_id).get("session_id")
    except (ValueError, AttributeError, RecursionError):
        return None
    return clean(session) if isinstance(session, str) else None


def _sub_agent(session: str, form: str, said: dict[str, str]) -> tuple[str | None, str | None]:
    """The program within a session, and its parent: the session itself, or one agent of it."""
    agent_header, parent_header = _SUB_AGENTS[form]
    agent = _clean_or_none(said.get(agent_header))
    if agent is None or agent == session:
        return session, None
    parent = _clean_or_none(said.get(parent_header))
    within = None if parent is None or parent == session else clean(f"{session}:{parent}")
    return clean(f"{session}:{agent}"), within or session


def _weak(
    body: dict[str, str],
    said: dict[str, str],
    hints: Collection[WeakHint],
    answers: Mapping[str, str],
) -> tuple[str, str | None, str]:
    """A name from the opted-in weak hints. A bearer token is named by its digest, never shown."""
    for hint in hints:
        if hint == "bearer":
            token = said.get("authorization", "")
            if token:
                return hint, f"key-{hashlib.sha256(token.encode()).hexdigest()[:16]}", hint
        else:
            value = _clean_or_none(body.get(hint))
            if hint == "previous_response_id" and value is not None:
                value = answers.get(value)
            if value is not None:
                return hint, value, f"body:{hint}"
    return "", None, ""
