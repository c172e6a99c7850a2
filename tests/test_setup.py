"""`make` on a machine that lacks something says what, before it downloads anything."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs make")


def made(folder: Path, *tools: str) -> subprocess.CompletedProcess[str]:
    """`make demo` on a checkout whose machine has these tools and no others."""
    for file in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / file, folder)
    programs = folder / "bin"
    programs.mkdir()
    for tool in ("make", "sh", "find"):
        (programs / tool).symlink_to(shutil.which(tool) or tool)
    if "python3" in tools:
        (programs / "python3").symlink_to(sys.executable)
    return subprocess.run(
        ["make", "demo"],
        cwd=folder,
        env={"PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ((), "error: Python 3.11 or newer is needed (python3 was not found)"),
        (("python3",), "error: a Rust toolchain is needed to build the native core"),
    ],
)
def test_what_is_missing_is_said_before_anything_is_made(
    tmp_path: Path, tools: tuple[str, ...], message: str
) -> None:
    ended = made(tmp_path, *tools)

    assert ended.returncode != 0
    assert message in ended.stderr
    assert not (tmp_path / ".venv").exists()
