"""sglang-router's flags, by their names: which we serve, and what becomes of the others.

A launcher written for sglang-router 0.3.2 starts this router unchanged. A flag with a counterpart
is mapped to it; one that asks for what is always so here needs nothing; every other one is named in
a warning, because a flag that is silently ignored is a bug found in production.

Source: sglang-router 0.3.2, `python -m sglang_router.launch_router --help`.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from thunder_router.errors import ConfigError

__all__ = ["Translation", "add", "translate"]


@dataclass(frozen=True, slots=True)
class Translation:
    """What a command line in sglang-router's words means here.

    Attributes:
        settings: Values for `config.load`, nested as settings are.
        unserved: Flags without a counterpart, as they were written.
    """

    settings: dict[str, Any]
    unserved: tuple[str, ...]


def _int(text: str) -> int:
    return int(text)


# Flag → where its value goes, and how it reads.
_MAPPED: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "--max-payload-size": ("relay.max_body_bytes", _int),
    "--shutdown-grace-period-secs": ("shutdown_grace_s", float),
    "--queue-size": ("scheduling.queue_limit", _int),
    "--queue-timeout-secs": ("scheduling.hold_limit_s", float),
    "--cb-failure-threshold": ("workers.breaker_failures", _int),
    "--cb-timeout-duration-secs": ("workers.breaker_open_s", float),
    "--tls-cert-path": ("tls_cert", str),
    "--tls-key-path": ("tls_key", str),
    "--health-check-timeout-secs": ("workers.probe_timeout_s", float),
}

# What these ask for is always so: ranks and models are told apart, starting waits for nobody.
_ALWAYS: Final = (
    "--dp-aware",
    "--enable-igw",
    "--worker-startup-timeout-secs",
    "--worker-startup-check-interval",
)

# Serving these by halves would serve wrong answers.
_REFUSED: Final = {
    "--pd-disaggregation": "prefill/decode pairs are not served",
    "--prefill": "prefill/decode pairs are not served",
    "--decode": "prefill/decode pairs are not served",
    "--mini-lb": "prefill/decode pairs are not served",
    "--client-cert-path": "client certificates for workers are not served",
    "--client-key-path": "client certificates for workers are not served",
    "--jwt-issuer": "JWT authentication is not served: use --api-key and --admin-key",
    "--jwt-audience": "JWT authentication is not served: use --api-key and --admin-key",
    "--jwt-jwks-uri": "JWT authentication is not served: use --api-key and --admin-key",
    "--jwt-role-mapping": "JWT authentication is not served: use --api-key and --admin-key",
}

_SWITCHES: Final = (
    "--service-discovery",
    "--disable-retries",
    "--disable-circuit-breaker",
    "--disable-health-check",
    "--tokenizer-cache-enable-l0",
    "--tokenizer-cache-enable-l1",
    "--enable-trace",
    "--control-plane-audit-enabled",
)
_VALUES: Final = (
    "--prefill-policy",
    "--decode-policy",
    "--cache-threshold",
    "--balance-abs-threshold",
    "--balance-rel-threshold",
    "--bucket-adjust-interval-secs",
    "--eviction-interval-secs",
    "--max-tree-size",
    "--max-idle-secs",
    "--assignment-mode",
    "--log-dir",
    "--selector",
    "--service-discovery-port",
    "--service-discovery-namespace",
    "--prefill-selector",
    "--decode-selector",
    "--prometheus-port",
    "--prometheus-host",
    "--prometheus-duration-buckets",
    "--request-id-headers",
    "--request-timeout-secs",
    "--cors-allowed-origins",
    "--max-concurrent-requests",
    "--rate-limit-tokens-per-second",
    "--retry-max-retries",
    "--retry-initial-backoff-ms",
    "--retry-max-backoff-ms",
    "--retry-backoff-multiplier",
    "--retry-jitter-factor",
    "--cb-success-threshold",
    "--cb-window-duration-secs",
    "--health-failure-threshold",
    "--health-success-threshold",
    "--health-check-interval-secs",
    "--health-check-endpoint",
    "--model-path",
    "--tokenizer-path",
    "--chat-template",
    "--tokenizer-cache-l0-max-entries",
    "--tokenizer-cache-l1-max-memory",
    "--reasoning-parser",
    "--tool-call-parser",
    "--mcp-config-path",
    "--backend",
    "--history-backend",
    "--oracle-wallet-path",
    "--oracle-tns-alias",
    "--oracle-connect-descriptor",
    "--oracle-username",
    "--oracle-password",
    "--oracle-pool-min",
    "--oracle-pool-max",
    "--oracle-pool-timeout-secs",
    "--postgres-db-url",
    "--postgres-pool-max",
    "--redis-url",
    "--redis-pool-max",
    "--redis-retention-days",
    "--ca-cert-paths",
    "--otlp-traces-endpoint",
    "--control-plane-api-keys",
)

PEER_POLICIES: Final = {
    "random": "off",
    "round_robin": "off",
    "power_of_two": "off",
    "cache_aware": "adaptive",
    "manual": "adaptive",
}
"""sglang-router's policies and what comes nearest: those that know no programs, and those that keep
a conversation where its cache is."""


def add(parser: argparse.ArgumentParser) -> None:
    """Lets `parser` take these flags; they are not shown in its help, but for one line."""
    group = parser.add_argument_group(
        "sglang-router",
        "The flags of sglang-router 0.3.2 are taken by their names; those without a counterpart "
        "here are named in a warning.",
    )
    hidden = argparse.SUPPRESS
    for flag, (_, kind) in _MAPPED.items():
        group.add_argument(flag, type=kind, default=hidden, help=hidden)
    taking_nothing = {"--dp-aware", "--enable-igw", "--pd-disaggregation", "--mini-lb"}
    for flag in (*_ALWAYS, *_REFUSED, *_SWITCHES, *_VALUES):
        if flag in taking_nothing or flag in _SWITCHES:
            group.add_argument(flag, action="store_true", default=hidden, help=hidden)
        elif flag in ("--prefill", "--decode"):
            group.add_argument(flag, nargs="+", action="append", default=hidden, help=hidden)
        else:
            group.add_argument(flag, nargs="*", default=hidden, help=hidden)


def translate(arguments: argparse.Namespace) -> Translation:
    """What the given flags mean here.

    Raises:
        ConfigError: a flag asks for what must not be served by halves.
    """
    given = {"--" + name.replace("_", "-"): value for name, value in vars(arguments).items()}
    for flag, why in _REFUSED.items():
        if flag in given:
            raise ConfigError(f"{flag}: {why}")
    settings: dict[str, Any] = {}
    for flag, (where, _) in _MAPPED.items():
        if flag in given:
            *sections, name = where.split(".")
            place = settings
            for section in sections:
                place = place.setdefault(section, {})
            place[name] = given[flag]
    unserved = tuple(flag for flag in (*_SWITCHES, *_VALUES) if flag in given)
    return Translation(settings, unserved)
