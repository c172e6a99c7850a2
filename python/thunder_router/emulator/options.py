"""What an emulated worker can be told. The only home of its defaults."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["VERSION", "EmulatorOptions"]

VERSION = "0.5.23+emulated"
"""The SGLang release whose answers are imitated, and the plain word that they are imitations."""


class EmulatorOptions(BaseModel):
    """One process of emulated workers: all alike, on consecutive ports."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 30100
    """Of the first worker; 0 takes any free port for each."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Workers in this process, on consecutive ports."""
    model: str = "emulated-model"
    """The name it serves. Any other is answered too, as SGLang does."""
    preset: str = "glm-4.6"
    """Whose constants time it: one of `Engine.models()`."""
    capacity_tokens: Annotated[int, Field(gt=0)] | None = None
    """KV tokens per DP rank; None: what the preset has."""
    hicache_ratio: Annotated[float, Field(ge=0)] = 0.0
    """Host tier as a multiple of the device's tokens; 0: none."""
    host_tokens: Annotated[int, Field(ge=0)] | None = None
    """Host tier in tokens; overrides the ratio."""
    write_policy: Literal["write_through", "write_back"] = "write_through"
    """When KV is copied to the host tier."""
    page_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Tokens of a page; prompts are told apart in blocks of 64, so it must divide that."""
    dp_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Data-parallel ranks, each with a pool of its own."""
    context_length: Annotated[int, Field(gt=0)] = 202_752
    """Longest prompt and answer of the model, tokens."""
    max_running: Annotated[int, Field(gt=0)] = 2048
    """Most requests running at once, per rank."""
    max_queued: Annotated[int, Field(ge=0)] | None = None
    """Most requests waiting, per rank; None: any number."""
    session_radix: bool = False
    """Evict first what no open session refers to (--enable-session-radix-cache)."""
    priority_scheduling: bool = False
    """Serve by priority, then by arrival (--enable-priority-scheduling)."""
    cache_report: bool = True
    """Say in usage how many prompt tokens were cached (--enable-cache-report)."""
    speed: Annotated[float, Field(gt=0, le=10_000)] = 1.0
    """Virtual seconds per real second; SGLang's own waits (health, disconnect polls) too."""
    coalesce_s: Annotated[float, Field(ge=0)] = 0.05
    """Real seconds of output in one streamed chunk; 0: a chunk per token, as the real one."""
    bytes_per_token: Annotated[float, Field(gt=0, le=64)] = 4.0
    """Of UTF-8 text. Below 1, short texts stand for long prompts."""
    median_output_tokens: Annotated[float, Field(ge=1)] = 175.0
    """Of the drawn length of answers; log-normal with a log-deviation of 0.85 (mini-SWE-agent)."""
    seed: int = 0
    """Of the drawn answers."""
    script: Path | None = None
    """Scripted answers, a JSON object a line: see `script.py`."""
    api_key: str | None = None
    """What callers must bring."""
    admin_api_key: str | None = None
    """What callers of flush, abort, pause and continue must bring instead."""

    @field_validator("page_size")
    @classmethod
    def _divides_a_block(cls, tokens: int) -> int:
        if 64 % tokens:
            raise ValueError("must divide 64")
        return tokens

    def host_pool_tokens(self, pool: int) -> int:
        """Host tier in tokens. Source: SGLang's (floor(C·R) // page + 1)·page, as captured."""
        if self.host_tokens is not None:
            return self.host_tokens
        if self.hicache_ratio == 0:
            return 0
        return (int(pool * self.hicache_ratio) // self.page_size + 1) * self.page_size
