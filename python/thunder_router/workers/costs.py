"""What prefill and load-back cost on a worker, for weighing a restore against a wait.

Prefill of c tokens at context x takes c·(a + b·x): `prefill_us_per_token` is a in µs, and
`prefill_ns_per_token2` is b in ns. Loading KV back from the host tier takes
`load_back_us_per_token`. The scheduler only compares these with one another and with waiting times,
so the right order of magnitude is what counts.

Source: ENGINE_MODEL.md §2, fitted to published throughput of 8-GPU FP8 servers (±25 %); load-back
is a GPU's share of the KV bytes over 45 GB/s of PCIe 5.0.
"""

import math
from dataclasses import dataclass

from thunder_router.config import WorkerEntry
from thunder_router.workers.report import WorkerReport

__all__ = ["Costs", "costs_of"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Cost constants of one worker."""

    prefill_us_per_token: float
    prefill_ns_per_token2: float
    load_back_us_per_token: float


_FAMILIES: tuple[tuple[str, Costs], ...] = (
    ("minimax", Costs(20.0, 0.38, 0.7)),
    ("glm", Costs(50.0, 1.0, 1.05)),
    ("qwen3-235b", Costs(36.0, 0.7, 1.07)),
    ("qwen3-coder-30b", Costs(9.0, 0.33, 0.55)),
    ("qwen3-8b", Costs(120.0, 5.6, 3.3)),
)
"""By a piece of the model's name; the first match counts."""

_OTHER = Costs(50.0, 1.0, 1.05)
"""A large model on eight GPUs, as GLM-4.6: over-estimating a restore costs least."""


def costs_of(report: WorkerReport, entry: WorkerEntry) -> Costs:
    """The constants for this worker: the operator's, the family's, or as measured.

    An unknown family takes the engine's own mean prefill time where it counts it: that holds the
    mean context in it already, so its slope is 0.
    """
    names = " ".join(
        [*(model.id for model in report.models), report.architecture or "", entry.model or ""]
    ).lower()
    found = next((costs for piece, costs in _FAMILIES if piece in names), None)
    if found is None and report.prefill_us_per_token is not None:
        measured_us = _stepped(report.prefill_us_per_token.value)
        found = Costs(measured_us, 0.0, _OTHER.load_back_us_per_token)
    base = found or _OTHER
    return Costs(
        prefill_us_per_token=_or(entry.prefill_us_per_token, base.prefill_us_per_token),
        prefill_ns_per_token2=_or(entry.prefill_ns_per_token2, base.prefill_ns_per_token2),
        load_back_us_per_token=_or(entry.load_back_us_per_token, base.load_back_us_per_token),
    )


def _stepped(value: float) -> float:
    """In steps of a quarter, so that a mean which creeps does not change the offer every second."""
    return float(1.25 ** round(math.log(value, 1.25)))


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
