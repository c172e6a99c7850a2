"""Logging, configured once: `key=value` lines on standard error, or one JSON object a line."""

import json
import logging
import sys
import time
from typing import Final

__all__ = ["configure"]

_LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(level: str, *, as_json: bool = False) -> None:
    """Sends every logger of this process to standard error, in UTC with milliseconds.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        as_json: One JSON object a line instead of `key=value`.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else _KeyValue())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[level])
    # Their news is ours already (workers, requests), and theirs is not key=value.
    for noisy in ("uvicorn", "uvicorn.error", "uvicorn.access", "aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(max(_LEVELS[level], logging.WARNING))


def _stamp(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class _KeyValue(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = (
            f"time={_stamp(record)} level={record.levelname.lower()} logger={record.name}"
            f" {record.getMessage()}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": _stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
