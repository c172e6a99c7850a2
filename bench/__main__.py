"""Every measurement that has a table in README.md, one after another."""

import sys

from bench import relay

if __name__ == "__main__":
    sys.exit(relay.main())
