"""Every measurement that `make bench` repeats, one after another; each writes its own table."""

import sys

from bench import relay, tick

if __name__ == "__main__":
    sys.exit(tick.main([]) or relay.main())
