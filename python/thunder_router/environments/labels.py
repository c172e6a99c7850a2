"""What this router's objects are called, and who may own anything at all.

Every object that the router creates carries the labels below and a name made from (program,
generation, role), so that creating it twice collides instead of leaking. An agent that wants its
own containers to go with its program needs one label, `thunder.program_id`.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

__all__ = [
    "COMPOSE_PROJECT",
    "GENERATION",
    "MANAGED",
    "OPERATION",
    "PREFIX",
    "PROGRAM",
    "PROTECT",
    "ROUTER",
    "is_image",
    "is_ref",
    "may_own",
    "object_labels",
    "object_name",
    "out_of_bounds",
]

PREFIX: Final = "thunder."
MANAGED: Final = "thunder.managed"
ROUTER: Final = "thunder.router"
PROGRAM: Final = "thunder.program_id"
GENERATION: Final = "thunder.gen"
OPERATION: Final = "thunder.op"
PROTECT: Final = "thunder.protect"
"""Set to anything: never touched, whatever else says so."""
COMPOSE_PROJECT: Final = "com.docker.compose.project"

_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,254}")
_PROGRAM_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


def may_own(program: str | None) -> bool:
    """Whether a request that names `program` may own containers.

    `default` is what clients that know nothing of programs send: as an owner it would tie
    strangers' containers together. Ids outside `[A-Za-z0-9._:-]{1,128}` cannot be label values
    everywhere.
    """
    return program is not None and program != "default" and bool(_PROGRAM_ID.fullmatch(program))


def is_ref(text: str) -> bool:
    """Whether this can be a container, network or volume. What cannot must not reach a URL."""
    return bool(_REF.fullmatch(text))


def is_image(text: str) -> bool:
    """Whether this can be an image. What cannot must not reach a URL."""
    return bool(_IMAGE.fullmatch(text)) and ".." not in text and "//" not in text


def out_of_bounds(labels: Mapping[str, str], router: str) -> bool:
    """Whether this router must leave the object alone: protected, or another router's."""
    return PROTECT in labels or labels.get(ROUTER, router) != router


def object_name(router: str, program: str, generation: int, role: str) -> str:
    """The one name of this object, at most 63 characters."""
    identity = "\0".join((router, program, str(generation), role)).encode()
    return f"thunder-{router[:8]}-{hashlib.sha256(identity).hexdigest()[:24]}"


def object_labels(router: str, program: str, generation: int, operation: str) -> dict[str, str]:
    """The labels of an object that this router creates."""
    return {
        MANAGED: "1",
        ROUTER: router,
        PROGRAM: program,
        GENERATION: str(generation),
        OPERATION: operation,
    }
