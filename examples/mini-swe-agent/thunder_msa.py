"""mini-SWE-agent in batch mode, each instance a program of its own.

The batch runner has one configuration for all instances, so a program id in it would make them all
one program. These two classes give each instance an id, put it on its requests and on its sandbox,
and say when it ends. Point the configuration at the model class, and nothing else changes:

    model:
      model_class: thunder_msa.ThunderModel

Environment: `THUNDER_ROUTER` (default http://127.0.0.1:30000), `THUNDER_RUN_ID` (default: random),
`THUNDER_API_KEY` where the router wants one, `THUNDER_ROUTER_ID` where several share an engine.
"""

import contextlib
import json
import os
import threading
import urllib.request
import uuid
from typing import Any

import minisweagent.environments
from minisweagent.environments.docker import DockerEnvironment
from minisweagent.models.litellm_model import LitellmModel

__all__ = ["ThunderDockerEnvironment", "ThunderModel"]

ROUTER = os.environ.get("THUNDER_ROUTER", "http://127.0.0.1:30000").rstrip("/")
RUN = os.environ.get("THUNDER_RUN_ID") or uuid.uuid4().hex[:8]

# The runner builds an instance's model and then its sandbox, both in the same thread.
_instance = threading.local()


def _tell(path: str, body: dict[str, Any]) -> None:
    """Tells the router; one that does not listen must not stop the agent."""
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("THUNDER_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(ROUTER + path, json.dumps(body).encode(), headers)
    with contextlib.suppress(OSError):
        urllib.request.urlopen(request, timeout=5).close()


class ThunderModel(LitellmModel):
    """A litellm model whose requests name their program."""

    def __init__(self, **settings: Any) -> None:
        program = f"{RUN}-{uuid.uuid4().hex[:12]}"
        _instance.program = program
        kwargs = dict(settings.pop("model_kwargs", {}))
        kwargs["extra_body"] = {**kwargs.get("extra_body", {}), "program_id": program}
        super().__init__(model_kwargs=kwargs, **settings)
        # Should this process be killed, its sandboxes go all the same.
        _tell("/thunder/v1/programs", {"id": program, "owner_pid": os.getpid()})


class ThunderDockerEnvironment(DockerEnvironment):
    """A sandbox that carries its program's label, and whose end is the program's."""

    def __init__(self, **settings: Any) -> None:
        self._program: str | None = getattr(_instance, "program", None)
        if self._program is not None:
            # With an init process the sandbox dies of SIGTERM instead of sitting out the time-out.
            added = ["--init", "--label", f"thunder.program_id={self._program}"]
            if router := os.environ.get("THUNDER_ROUTER_ID"):
                added += ["--label", f"thunder.router={router}"]
            settings["run_args"] = [*settings.pop("run_args", ["--rm"]), *added]
        super().__init__(**settings)

    def cleanup(self) -> None:
        """Ends the program; the router removes the sandbox, and so does the parent's own way."""
        super().cleanup()  # type: ignore[no-untyped-call]
        program, self._program = self._program, None
        if program is not None:
            _tell("/programs/release", {"program_id": program})


# The batch runner fills the image in only for the class it knows as "docker".
minisweagent.environments._ENVIRONMENT_MAPPING["docker"] = (
    f"{__name__}.{ThunderDockerEnvironment.__name__}"
)
