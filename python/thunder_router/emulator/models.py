"""The constants of a model on its GPUs: known ones by name, others from a TOML file."""

import tomllib
from pathlib import Path
from typing import Any, Final

from thunder_router._core import Engine, EngineModel
from thunder_router.errors import ConfigError

__all__ = ["EngineModel", "engine_model", "models"]

CONSTANTS: Final = (
    "capacity_tokens",
    "prefill_us_per_token",
    "prefill_ns_per_token2",
    "base_ms",
    "experts_ms",
    "expert_share",
    "kv_read_ns_per_token",
    "load_back_us_per_token",
    "chunk_tokens",
)
_WHOLE: Final = ("capacity_tokens", "chunk_tokens")


def models() -> list[str]:
    """Names of the models whose constants are known."""
    return Engine.models()


def engine_model(model: str) -> EngineModel:
    """The model of this name, or of this TOML file.

    A file states the constants of `EngineModel` as top-level keys; with `like = "glm-4.6"` it
    states only those that differ from a known model's.

    Raises:
        ConfigError: no such name or file, or the file lacks a constant, has one that is unknown, or
            one that is out of range.
    """
    if not model.endswith(".toml"):
        return EngineModel.preset(model)
    try:
        stated = tomllib.loads(Path(model).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{model}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{model}: {error}") from error
    try:
        return _stated(stated)
    except (ConfigError, OverflowError) as error:
        raise ConfigError(f"{model}: {error}") from error


def _stated(stated: dict[str, Any]) -> EngineModel:
    like = stated.pop("like", None)
    constants: dict[str, Any] = {}
    if like is not None:
        known = EngineModel.preset(str(like))
        constants = {name: getattr(known, name) for name in CONSTANTS}
    for name in stated:
        if name not in CONSTANTS:
            raise ConfigError(f"no constant {name!r}; known: like, {', '.join(CONSTANTS)}")
    constants |= stated
    for name in CONSTANTS:
        if name not in constants:
            raise ConfigError(f"{name} is missing; or say which model it is like")
        value, wanted = constants[name], int if name in _WHOLE else (int, float)
        if isinstance(value, bool) or not isinstance(value, wanted) or not value >= 0:
            raise ConfigError(f"{name} = {value!r} must be a number of at least 0")
    return EngineModel(**constants)
