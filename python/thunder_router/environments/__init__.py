"""Tool environments: what a program's tools run in goes with it, and is there when it is needed.

`Environments` is told what happens to programs and looks after their containers, networks, volumes
and images. It knows nothing of schedulers. docs/environments.md is the manual.
"""

from thunder_router.environments.docker_engine import DockerEngine
from thunder_router.environments.service import Environments
from thunder_router.environments.store import Store

__all__ = ["DockerEngine", "Environments", "Store"]
