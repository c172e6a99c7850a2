"""`thunder-router doctor`: looks at workers, and says what is off and how to switch it on."""

import argparse
from pathlib import Path

from thunder_router.config import load
from thunder_router.workers import doctor

__all__ = ["add"]


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "doctor",
        help="examine workers",
        description="Asks each worker what it is, and says what would make it serve better.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--worker-urls", nargs="*", metavar="URL", default=[], help="SGLang servers"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings (thunder.toml)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examines the workers of the flag, or of the settings."""
    settings = load(arguments.config)
    urls = arguments.worker_urls or settings.workers.urls
    return doctor.run(tuple(urls), settings.workers)
