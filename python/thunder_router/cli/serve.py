"""`thunder-router serve`: the router itself."""

import argparse
import logging
import signal
import sys
from pathlib import Path
from typing import Any, Final

import uvloop

from thunder_router.api import app
from thunder_router.cli import logs, peer_flags
from thunder_router.cli.peer_flags import PEER_POLICIES
from thunder_router.config import Settings, load

__all__ = ["add", "read_settings"]

_LOG = logging.getLogger(__name__)
_POLICIES: Final = ("off", "paper", "adaptive")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "serve",
        help="serve the router",
        description="Routes requests to SGLang workers, and schedules agent programs over them.",
        allow_abbrev=False,
    )
    hidden = argparse.SUPPRESS
    flag = parser.add_argument
    flag("--config", type=Path, metavar="FILE", default=None, help="settings (thunder.toml)")
    flag("--worker-urls", nargs="*", metavar="URL", default=hidden, help="SGLang servers")
    flag("--host", default=hidden, help="address to listen on (127.0.0.1)")
    flag("--port", type=int, default=hidden, help="port to listen on (30000); 0: any free one")
    flag(
        "--policy",
        choices=(*_POLICIES, *PEER_POLICIES),
        metavar="{off,paper,adaptive}",
        default=hidden,
        help="how programs are scheduled (adaptive)",
    )
    flag("--api-key", metavar="KEY", default=hidden, help="key of clients, and for workers")
    flag("--admin-key", metavar="KEY", default=hidden, help="key for control calls")
    flag("--worker-api-key", metavar="KEY", default=hidden, help="key for workers alone")
    flag("--log-level", choices=("debug", "info", "warn", "warning", "error"), default=hidden)
    flag("--log-json", action="store_true", help="log JSON objects instead of key=value")
    flag("--journal", type=Path, metavar="FILE", default=hidden, help="record every decision")
    flag("--snapshot", type=Path, metavar="FILE", default=hidden, help="survive restarts")
    peer_flags.add(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serves until a signal."""
    settings, warnings = read_settings(arguments)
    logs.configure(settings.log_level, as_json=arguments.log_json)
    for warning in warnings:
        _LOG.warning(warning)
    # uvicorn raises the signal that it has obeyed once more when everything is over.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        uvloop.run(app.serve(settings))
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def read_settings(arguments: argparse.Namespace) -> tuple[Settings, list[str]]:
    """Settings from flags, environment and file; and what should be said about the flags.

    Raises:
        ConfigError: a value is unknown, out of range or contradicts another.
    """
    given = vars(arguments)
    translation = peer_flags.translate(arguments)
    flags: dict[str, Any] = translation.settings
    warnings = []
    if translation.unserved:
        warnings.append("flags_without_effect flags=" + ",".join(translation.unserved))

    def put(section: str | None, name: str, value: object) -> None:
        place = flags if section is None else flags.setdefault(section, {})
        place[name] = value

    for name in ("host", "port"):
        if name in given:
            put(None, name, given[name])
    if "worker_urls" in given:
        put("workers", "urls", tuple(given["worker_urls"]))
    if "log_level" in given:
        level = given["log_level"]
        put(None, "log_level", "warning" if level == "warn" else level)
    if "policy" in given:
        policy = given["policy"]
        nearest = PEER_POLICIES.get(policy, policy)
        if nearest != policy:
            warnings.append(f"policy_translated given={policy} used={nearest}")
        put("scheduling", "policy", nearest)
    if "api_key" in given:
        put(None, "api_key", given["api_key"])
        put("workers", "api_key", given["api_key"])
    if "worker_api_key" in given:
        put("workers", "api_key", given["worker_api_key"])
    if "admin_key" in given:
        put(None, "admin_key", given["admin_key"])
    if "journal" in given:
        put("journal", "path", given["journal"])
    if "snapshot" in given:
        put("journal", "snapshot", given["snapshot"])
    return load(arguments.config, **flags), warnings
