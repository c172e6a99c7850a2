"""What the router says of itself to Prometheus, under names that begin with `thunder_`.

Theory of operation. The hot path only adds to plain integers and lists; everything is turned into
metric families when somebody scrapes. Gauges are read from the rooms at that moment, so they cannot
drift. Labels are few and bounded: API, outcome, status class, worker, rank, model. Never a program.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

__all__ = ["CONTENT_TYPE", "Exchange", "Gauge", "Metrics", "Sample"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
"""Upper bounds of histogram buckets: from a small answer to a long hold."""


class Exchange(Protocol):
    """One finished exchange, as the relay tells it. Times in seconds from its arrival."""

    @property
    def dialect(self) -> str | None: ...  # noqa: D102
    @property
    def outcome(self) -> str: ...  # noqa: D102
    @property
    def status(self) -> int: ...  # noqa: D102
    @property
    def worker(self) -> int | None: ...  # noqa: D102
    @property
    def attempts(self) -> int: ...  # noqa: D102
    @property
    def held_s(self) -> float: ...  # noqa: D102
    @property
    def first_byte_s(self) -> float | None: ...  # noqa: D102
    @property
    def total_s(self) -> float: ...  # noqa: D102
    @property
    def prompt_tokens(self) -> int | None: ...  # noqa: D102
    @property
    def completion_tokens(self) -> int | None: ...  # noqa: D102
    @property
    def cached_tokens(self) -> int | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a gauge or counter, read at scrape time."""

    labels: tuple[str, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Gauge:
    """A family that is read from elsewhere when somebody scrapes.

    Attributes:
        name: Without the `thunder_` prefix; a counter's without `_total`.
        about: One line for people.
        labels: Names of the labels of every sample.
        read: Gives the samples of the moment.
        counter: It only ever grows.
    """

    name: str
    about: str
    labels: tuple[str, ...]
    read: Callable[[], Iterable[Sample]]
    counter: bool = False


class _Histogram:
    """Counts per bucket and a sum; cheaper than a metric object on every request."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(_SECONDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_SECONDS, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        running = 0
        found: list[tuple[str, float]] = []
        for bound, count in zip([*map(str, _SECONDS), "+Inf"], self.counts, strict=True):
            running += count
            found.append((bound, running))
        return found


class _Times:
    """What requests of one API have taken, stage by stage."""

    __slots__ = ("first_byte", "held", "total")

    def __init__(self) -> None:
        self.held = _Histogram()
        self.first_byte = _Histogram()
        self.total = _Histogram()


class Metrics:
    """Sees every exchange end, and answers a scrape."""

    def __init__(self, gauges: Iterable[Gauge] = ()) -> None:
        self._gauges = [*gauges]
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._retries = 0
        self._tokens: Counter[str] = Counter()
        self._times: dict[str, _Times] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def add(self, gauge: Gauge) -> None:
        """One more family to read at scrape time."""
        self._gauges.append(gauge)

    def ended(self, exchange: Exchange) -> None:
        """One exchange is over."""
        api = exchange.dialect or "other"
        self._requests[api, exchange.outcome, exchange.status] += 1
        if exchange.attempts > 1:
            self._retries += exchange.attempts - 1
        times = self._times.get(api)
        if times is None:
            times = self._times[api] = _Times()
        times.held.add(exchange.held_s)
        times.total.add(exchange.total_s)
        if exchange.first_byte_s is not None:
            times.first_byte.add(exchange.first_byte_s)
        tokens = self._tokens
        if exchange.prompt_tokens is not None:
            tokens["prompt"] += exchange.prompt_tokens
            tokens["cached"] += exchange.cached_tokens or 0
        if exchange.completion_tokens is not None:
            tokens["completion"] += exchange.completion_tokens

    def scrape(self) -> bytes:
        """Everything, in the text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """For the registry: every family as of now."""
        requests = CounterMetricFamily(
            "thunder_requests",
            "Requests by API, how they ended, and the status the client got (0: it had left).",
            labels=("api", "outcome", "status"),
        )
        for (api, outcome, status), count in self._requests.items():
            requests.add_metric((api, outcome, str(status)), count)
        yield requests
        retries = CounterMetricFamily("thunder_retries", "Sends beyond the first of a request.")
        retries.add_metric((), self._retries)
        yield retries
        tokens = CounterMetricFamily(
            "thunder_tokens",
            "Tokens that workers counted; cached ones are part of prompt.",
            labels=("kind",),
        )
        for kind in ("prompt", "cached", "completion"):
            tokens.add_metric((kind,), self._tokens[kind])
        yield tokens
        held = HistogramMetricFamily(
            "thunder_held_seconds", "From arrival to a place.", labels=("api",)
        )
        first_byte = HistogramMetricFamily(
            "thunder_first_byte_seconds", "From arrival to the answer's start.", labels=("api",)
        )
        total = HistogramMetricFamily(
            "thunder_request_seconds", "From arrival to the end.", labels=("api",)
        )
        for api, times in self._times.items():
            for family, histogram in (
                (held, times.held),
                (first_byte, times.first_byte),
                (total, times.total),
            ):
                family.add_metric((api,), histogram.buckets(), histogram.sum)
        yield from (held, first_byte, total)
        for gauge in self._gauges:
            family_of = CounterMetricFamily if gauge.counter else GaugeMetricFamily
            read = family_of(f"thunder_{gauge.name}", gauge.about, labels=gauge.labels)
            for sample in gauge.read():
                read.add_metric(sample.labels, sample.value)
            yield read
