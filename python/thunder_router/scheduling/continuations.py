"""Which program got which answer, for clients that only say what they continue.

The responses API continues an answer by its id (`previous_response_id`). Whoever got that answer is
then the program; a conversation that never said a name is called by the id of its first answer. The
latest answers are remembered, so many and no more.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["MOST_ANSWERS", "Continuations"]

MOST_ANSWERS: Final = 16_384
"""About 4 MB of ids. What was forgotten continues as a request of no program."""


class Continuations(Mapping[str, str]):
    """Programs by the ids of the answers that they got."""

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        self._most = most
        self._programs: OrderedDict[str, str] = OrderedDict()

    def answered(self, response: str, program: str | None) -> None:
        """The answer of this id went to `program`, or to nobody who said a name."""
        self._programs[response] = response if program is None else program
        self._programs.move_to_end(response)
        if len(self._programs) > self._most:
            self._programs.popitem(last=False)

    def __getitem__(self, response: str) -> str:
        return self._programs[response]

    def __iter__(self) -> Iterator[str]:
        return iter(self._programs)

    def __len__(self) -> int:
        return len(self._programs)
