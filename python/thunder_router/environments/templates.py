"""From settings and API requests to an environment's `Spec`. Pure.

The first template whose pattern matches the program's id applies. Its image may be made from the
id, so that one template serves a whole benchmark: `swebench/{instance}`.
"""

import re

from thunder_router.environment_settings import EnvironmentSettings, ProbeSettings, TemplateSettings
from thunder_router.environments.records import Spec

__all__ = ["of_program", "of_template"]


def of_program(settings: EnvironmentSettings, program: str) -> Spec | None:
    """The environment that the settings foresee for this program; None: none."""
    for template in settings.templates.values():
        if found := re.match(template.match, program):
            groups = {name: value or "" for name, value in found.groupdict().items()}
            return of_template(template, {"id": program} | groups)
    return None


def of_template(template: TemplateSettings, values: dict[str, str]) -> Spec:
    """The template with its image filled in."""
    image = template.image
    for name, value in values.items():
        image = image.replace(f"{{{name}}}", value)
    probe = template.probe or ProbeSettings()
    return Spec(
        image=image,
        command=template.command,
        init=template.init,
        init_timeout_ms=round(template.init_timeout_s * 1000),
        probe_exec=probe.exec,
        probe_http_path=probe.http_path,
        probe_healthcheck=probe.healthcheck,
        probe_interval_ms=round(probe.interval_s * 1000),
        probe_timeout_ms=round(probe.timeout_s * 1000),
        env=tuple(template.env.items()),
        workdir=template.workdir,
        network=template.network,
        ports=template.ports,
        memory_bytes=template.memory_bytes,
        pids=template.pids,
        cpus=template.cpus,
    )
