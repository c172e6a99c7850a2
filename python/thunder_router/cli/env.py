"""`thunder-router env`: what programs own on the engine, and clearing up."""

import argparse
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from thunder_router.errors import ConfigError

__all__ = ["add"]

_LIMIT_S = 10.0


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "env",
        help="look at tool environments",
        description="Asks a running router what its programs own on the container engine.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--router", metavar="URL", default="http://127.0.0.1:30000", help="default: %(default)s"
    )
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        default=os.environ.get("THUNDER_ADMIN_KEY"),
        help="the admin key; default: THUNDER_ADMIN_KEY",
    )
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    listing = what.add_parser("ls", help="list what is owned", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="as the router says it")
    listing.set_defaults(run=_list)
    collect = what.add_parser("gc", help="remove idle images, compare books and engine")
    collect.add_argument("--dry-run", action="store_true", help="only say what would go")
    collect.set_defaults(run=_collect)


def _list(arguments: argparse.Namespace) -> int:
    """Lists; 1 while the engine does not answer."""
    found = _ask(arguments, "GET", "/thunder/v1/resources")
    status = found["status"]
    if arguments.json:
        print(json.dumps(found, indent=1))
        return int(status["environments"] != "ok")
    table = Table("program", "gen", "kind", "state", "origin", "since", "what", "error")
    now_ms = time.time_ns() // 1_000_000
    for one in sorted(found["resources"], key=lambda r: (r["program"], r["generation"])):
        table.add_row(
            one["program"],
            str(one["generation"]),
            one["kind"],
            one["state"],
            one["origin"],
            f"{max(0, now_ms - one['since_ms']) // 1000} s",
            one["ref"][:32],
            one["error"] or "",
        )
    console = Console()
    console.print(table)
    console.print(_summary(status), markup=False)
    return int(status["environments"] != "ok")


def _collect(arguments: argparse.Namespace) -> int:
    found = _ask(arguments, "POST", "/thunder/v1/gc", {"dry_run": arguments.dry_run})
    verb = "would be removed" if arguments.dry_run else "asked to go"
    for image in found["images"]:
        print(f"image {image} {verb}")
    for one in found["leaving"]:
        print(f"{one['kind']} {one['ref']} of {one['program']} is {one['state']}")
    print(f"images={len(found['images'])} leaving={len(found['leaving'])}")
    return 0


def _summary(status: Mapping[str, Any]) -> str:
    why = f" ({status['engine_error']})" if status["engine_error"] else ""
    return (
        f"engine={status['environments']}{why} programs={status['programs']}"
        f" images_ours={status['images_ours']} unclaimed={status['unclaimed']}"
        f" disk={status['disk_ratio']}"
    )


def _ask(
    arguments: argparse.Namespace, method: str, path: str, body: Mapping[str, Any] | None = None
) -> Any:
    headers = {"Content-Type": "application/json"}
    if arguments.api_key:
        headers["Authorization"] = f"Bearer {arguments.api_key}"
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        arguments.router.rstrip("/") + path, sent, headers, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            hint = " (are environments enabled there?)" if error.code == 404 else ""
            raise ConfigError(f"{arguments.router} answers {error.code}{hint}") from error
    except urllib.error.URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise OSError(f"no router at {arguments.router}: {reason}") from error
    except ValueError as error:
        raise ConfigError(f"{arguments.router}: {error}") from error
