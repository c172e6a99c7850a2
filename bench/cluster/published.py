"""Starts a clone of the public ThunderAgent in engine time: `published.py FOLDER SPEED ARGUMENTS…`.

It runs in an environment of its own, as it stands, but for one default: a program that was held for
1,800 s is forced in, and those are seconds of the engine's.
"""

import importlib
import sys

FORCED_AFTER_S = 1800.0


def main() -> int:
    """Its own command line, once that default is set."""
    folder, speed, *arguments = sys.argv[1:]
    sys.path.insert(0, folder)
    router = importlib.import_module("ThunderAgent.scheduler.router")
    router.MultiBackendRouter._wait_for_resume.__defaults__ = (FORCED_AFTER_S / float(speed),)
    sys.argv = ["ThunderAgent", *arguments]
    return int(importlib.import_module("ThunderAgent.__main__").main())


if __name__ == "__main__":
    sys.exit(main())
