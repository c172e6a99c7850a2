"""The first line of an answer of our own."""

from http import HTTPStatus
from typing import Final

__all__ = ["status_line"]

_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus
}


def status_line(status: int) -> bytes:
    """The line, with the phrase that is usual for this status."""
    return _LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
