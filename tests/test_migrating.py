"""The page for those who come from sglang-router says what the code does, flag by flag."""

import argparse
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from thunder_router.cli import serve
from thunder_router.errors import ConfigError

PAGE = (Path(__file__).parent.parent / "docs/migrating-from-sglang-router.md").read_text()
FILE = Path(__file__)
TLS = ("--tls-cert-path", "--tls-key-path")
OURS = {
    *("--help", "--config", "--log-json", "--journal", "--snapshot"),
    *("--admin-key", "--worker-api-key"),
}
SWITCHES = {
    *("--dp-aware", "--enable-igw", "--pd-disaggregation", "--mini-lb", "--service-discovery"),
    *("--disable-retries", "--disable-circuit-breaker", "--disable-health-check"),
    *("--tokenizer-cache-enable-l0", "--tokenizer-cache-enable-l1", "--enable-trace"),
    "--control-plane-audit-enabled",
}


def rows() -> list[tuple[str, str, str]]:
    """Each flag of the table, what becomes of it, and the remark."""
    section = PAGE.split("## Flags")[1].split("\n## ")[0]
    found = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        flags = re.findall(r"`(--[a-z0-9-]+)`", cells[0]) if line.startswith("|") else []
        found += [(flag, cells[1], cells[2]) for flag in flags]
    return found


FLAGS = rows()


@cache
def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(allow_abbrev=False)
    serve.add(whole.add_subparsers())
    return whole


def settings_of(*argv: str) -> tuple[dict[str, Any], str]:
    settings, warnings = serve.read_settings(parser().parse_args(["serve", *argv]))
    return settings.model_dump(), "\n".join(warnings)


def value_of(flag: str) -> list[str]:
    if flag in SWITCHES:
        return []
    if flag in TLS:
        return [str(FILE)]
    return {"--policy": ["cache_aware"], "--log-level": ["warn"]}.get(flag, ["7"])


def test_the_page_has_each_of_the_98_flags_once_and_no_other() -> None:
    # argparse has no public way to say which options it knows.
    subparsers = next(a for a in parser()._actions if isinstance(a, argparse._SubParsersAction))
    known = {
        option
        for action in subparsers.choices["serve"]._actions
        for option in action.option_strings
        if option.startswith("--")
    }
    documented = [flag for flag, _, _ in FLAGS]

    assert sorted(documented) == sorted(known - OURS)
    assert len(documented) == 98


@pytest.mark.parametrize(("flag", "becomes", "remark"), FLAGS, ids=[row[0] for row in FLAGS])
def test_a_flag_does_what_the_page_says(flag: str, becomes: str, remark: str) -> None:
    plain, _ = settings_of()
    match becomes:
        case "refused":
            with pytest.raises(ConfigError, match=flag):
                settings_of(flag, *value_of(flag))
        case "no effect":
            settings, warnings = settings_of(flag, *value_of(flag))
            assert settings == plain
            assert warnings == f"flags_without_effect flags={flag}"
        case "always":
            assert settings_of(flag, *value_of(flag)) == (plain, "")
        case "mapped":
            where = re.search(r"`([a-z_.]+)`", remark)
            assert where is not None
            certificate = ["--tls-cert-path", str(FILE)] if flag == "--tls-key-path" else []
            settings, _ = settings_of(flag, *value_of(flag), *certificate)
            expected = FILE if flag in TLS else "adaptive" if flag == "--policy" else 7
            assert setting(settings, where[1]) == expected
        case "same":
            settings, warnings = settings_of(flag, *value_of(flag))
            assert (settings != plain, warnings) == (True, "")
        case _:
            pytest.fail(f"{becomes!r} is not explained above the table")


def setting(settings: dict[str, Any], path: str) -> Any:
    section, _, name = path.rpartition(".")
    return settings[section][name] if section else settings[name]


def test_the_settings_and_endpoints_it_names_exist() -> None:
    configuration = (Path(__file__).parent.parent / "docs/configuration.md").read_text()
    named = re.findall(r"`((?:scheduling|relay|workers)\.[a-z_]+)`", PAGE)
    assert len(named) > 8
    assert [name for name in named if f"| `{name}` |" not in configuration] == []
