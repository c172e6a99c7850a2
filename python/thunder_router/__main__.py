"""`python -m thunder_router`: the command line without its console script."""

import sys

from thunder_router.cli import main

sys.exit(main())
