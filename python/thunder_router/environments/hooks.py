"""Hooks: telling Kubernetes, E2B, Daytona, Modal or an API server of a program's moments.

A hook is heard when it answers 2xx (HTTP) or exits with 0 (command). It may be told the same moment
twice, after a lost answer or a restart; the idempotency key is then the same.
"""

import asyncio
import json
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote

import aiohttp
from yarl import URL

from thunder_router.environment_settings import HookSettings
from thunder_router.environments.events import Ended, Outcome, Step
from thunder_router.environments.records import Resource

__all__ = ["Hooks"]

_TRANSIENT = frozenset({408, 409, 425, 429})
_GONE = frozenset({404, 410})


class Hooks:
    """Runs the configured hooks.

    Args:
        hooks: The hooks, by settings.
    """

    def __init__(self, hooks: tuple[HookSettings, ...]) -> None:
        self._hooks: Mapping[str, HookSettings] = {hook.name: hook for hook in hooks}

    async def run(self, run: Resource) -> Ended:
        """Tells one moment, once."""
        hook = self._hooks.get(run.ref.partition(":")[0])
        if hook is None:
            return _ended(run, Outcome.REFUSED, "no such hook is configured any more")
        try:
            async with asyncio.timeout(hook.timeout_s):
                return await (_call(hook, run) if hook.url else _command(hook, run))
        except TimeoutError:
            return _ended(run, Outcome.RETRY, f"no answer within {hook.timeout_s:g} s")
        except (aiohttp.ClientError, OSError) as error:
            return _ended(run, Outcome.RETRY, str(error) or type(error).__name__)


def _facts(run: Resource) -> dict[str, str]:
    return {
        "program_id": run.owner.program,
        "generation": str(run.owner.generation),
        "moment": run.moment or "",
    }


def _ended(run: Resource, outcome: Outcome, error: str | None = None) -> Ended:
    return Ended(run.key, Step.REMOVE, outcome, error)


async def _call(hook: HookSettings, run: Resource) -> Ended:
    facts = _facts(run)
    url = hook.url
    for name, value in facts.items():
        url = url.replace(f"{{{name}}}", quote(value, safe=""))
    headers = {name: secret.get_secret_value() for name, secret in hook.headers.items()}
    headers["Idempotency-Key"] = run.ref
    body = None if hook.method == "GET" else facts
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            hook.method, URL(url, encoded=True), json=body, headers=headers, allow_redirects=False
        ) as answer,
    ):
        status = answer.status
    if status < 300 or (hook.method == "DELETE" and status in _GONE):
        return _ended(run, Outcome.DONE)
    transient = status >= 500 or status in _TRANSIENT
    return _ended(run, Outcome.RETRY if transient else Outcome.REFUSED, f"answered {status}")


async def _command(hook: HookSettings, run: Resource) -> Ended:
    process = await _started(hook, run)
    try:
        await process.communicate(json.dumps(_facts(run)).encode())
    finally:
        await _stopped(process)
    if process.returncode:
        return _ended(run, Outcome.RETRY, f"exited with {process.returncode}")
    return _ended(run, Outcome.DONE)


async def _started(hook: HookSettings, run: Resource) -> Process:
    facts = {f"THUNDER_{name.upper()}": value for name, value in _facts(run).items()}
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *hook.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=os.environ | facts | {"THUNDER_IDEMPOTENCY_KEY": run.ref},
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # It may be at work before we hold it in hand.
        await _stopped(await starting)
        raise


async def _stopped(process: Process) -> None:
    """Ends the command with whatever it started: it has a session of its own."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
