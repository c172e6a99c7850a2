"""Whose is this object? Claims that an object and a program can have in common.

A claim is a short string. An object raises claims (its label, its compose project matched by a
rule, its address), a program raises claims (its id, its id matched by a rule, the address that it
calls from), and one that both raise joins them. Nothing else does: an object without a claim in
common with a known program is nobody's, and stays untouched.
"""

import re
from collections.abc import Sequence

from thunder_router.environment_settings import ComposeRule
from thunder_router.environments import labels
from thunder_router.environments.records import Kind, Sighting

__all__ = ["Claims", "is_ours"]


def is_ours(sighting: Sighting, router: str) -> str | None:
    """The program of an object that carries this very router's label, else None.

    Only such an object may be adopted for a program that nobody has heard of: without the label
    it may belong to another router's program.
    """
    program = sighting.labels.get(labels.PROGRAM)
    if labels.out_of_bounds(sighting.labels, router) or labels.ROUTER not in sighting.labels:
        return None
    return program if labels.may_own(program) else None


class Claims:
    """The enabled identity rules.

    Args:
        router: This router's id; objects of another's raise no claim.
        rules: Compose rules, joined by their `id` groups, case aside.
        by_peer: Whether an address is a claim.
    """

    def __init__(self, router: str, rules: Sequence[ComposeRule], *, by_peer: bool) -> None:
        self._router = router
        self._rules = [(re.compile(r.program), re.compile(r.compose_project)) for r in rules]
        self._by_peer = by_peer

    def of_object(self, sighting: Sighting) -> list[str]:
        """Claims in the order in which they bind; empty for what is out of bounds."""
        if labels.out_of_bounds(sighting.labels, self._router):
            return []
        claims = []
        program = sighting.labels.get(labels.PROGRAM)
        if program is not None:
            # Who labels an object means it: no rule may give it to someone else.
            return [f"label:{program}"] if labels.may_own(program) else []
        project = sighting.labels.get(labels.COMPOSE_PROJECT)
        if project is not None:
            for number, (_, pattern) in enumerate(self._rules):
                if found := pattern.match(project):
                    claims.append(f"rule{number}:{found['id'].lower()}")
        if self._by_peer and sighting.kind is Kind.CONTAINER:
            claims += [f"peer:{address}" for address in sighting.addresses]
        return claims

    def of_program(self, program: str, peer: str | None) -> list[str]:
        """The claims that a program raises, calling from `peer`."""
        if not labels.may_own(program):
            return []
        claims = [f"label:{program}"]
        for number, (pattern, _) in enumerate(self._rules):
            if found := pattern.match(program):
                claims.append(f"rule{number}:{found['id'].lower()}")
        if self._by_peer and peer is not None:
            claims.append(f"peer:{peer}")
        return claims
