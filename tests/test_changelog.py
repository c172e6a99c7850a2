"""The changelog keeps the form that it names: Keep a Changelog, one line a change."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
RELEASE = re.compile(r"## \[(Unreleased|\d+\.\d+\.\d+)\](?: - (\d{4}-\d{2}-\d{2}))?")
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def faults(text: str) -> list[str]:
    """Every line that breaks the form, with what is wrong."""
    found = []
    if not text.startswith("# Changelog\n"):
        found.append("no title")
    releases: list[str] = []
    kinds: list[str] = []
    for line in text.splitlines():
        if line.startswith("## "):
            match = RELEASE.fullmatch(line)
            if match is None or (match[1] == "Unreleased") == bool(match[2]):
                found.append(f"not a release: {line}")
            releases.append(line)
            kinds = []
        elif line.startswith("### "):
            kind = line.removeprefix("### ")
            if kind not in KINDS or kind in kinds or not releases:
                found.append(f"misplaced: {line}")
            kinds.append(kind)
        elif releases and line and not (line.startswith("- ") and kinds):
            found.append(f"not one line under a heading: {line}")
        elif line.startswith("- ") and not line.endswith("."):
            found.append(f"no full stop: {line}")
    if not releases or releases[0] != "## [Unreleased]":
        found.append("[Unreleased] does not come first")
    if len(set(releases)) != len(releases):
        found.append("a release stands twice")
    return found


def test_the_changelog_has_the_form_it_names() -> None:
    assert faults(CHANGELOG.read_text()) == []


def test_no_release_is_newer_than_the_version() -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    released = re.findall(r"^## \[([\d.]+)\]", CHANGELOG.read_text(), re.MULTILINE)
    assert [release for release in released if numbers(release) > numbers(version)] == []


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_faults_of_form_are_found() -> None:
    head = "# Changelog\n\n## [Unreleased]\n"
    assert faults(head + "\n### Added\n\n- A line.\n") == []
    assert faults(head + "\n### Improved\n") == ["misplaced: ### Improved"]
    assert faults(head + "\n### Added\n- A line\n") == ["no full stop: - A line"]
    assert faults(head + "- A line.\n") == ["not one line under a heading: - A line."]
    assert faults(head + "## [1.0.0]\n") == ["not a release: ## [1.0.0]"]
    assert faults("# Changelog\n\n## [1.0.0] - 2026-01-01\n") == [
        "[Unreleased] does not come first"
    ]
