"""What users install: one abi3 wheel, and an sdist that stands on its own.

Not part of a plain `pytest` run, for it compiles: `make test-packaging`. Cargo's target folder is
the checkout's, so that what is built already is not built again, and dependencies come from the
environment that runs the tests, so that nothing is downloaded.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


def run(command: Sequence[str | Path], cwd: Path) -> str:
    """Stdout of a command that must succeed."""
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target")),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def build_wheel(source: Path, into: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation"]
    run([*pip, "--wheel-dir", into], cwd=source)
    (wheel,) = into.iterdir()
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """A fresh virtual environment with just this wheel; its dependencies are borrowed.

    A path in a .pth file is searched after the environment's own packages, and the .pth files
    in there are not read, so the package itself can only come from the wheel.
    """
    run([sys.executable, "-m", "venv", folder], cwd=folder.parent)
    python = folder / "bin" / "python"
    run([python, "-m", "pip", "install", "--no-deps", "--no-index", wheel], cwd=folder.parent)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist."""
    folder = tmp_path_factory.mktemp("sdist")
    run([BIN / "maturin", "sdist", "--out", folder], cwd=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
    return unpacked


def test_the_wheel_is_one_abi3_wheel_with_stub_marker_and_extension(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    extensions = [name for name in names if name.endswith(".so")]
    assert extensions == ["thunder_router/_core.abi3.so"]
    assert {"thunder_router/_core.pyi", "thunder_router/py.typed"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert all(top.startswith("thunder_router") for top in tops), tops


def test_the_installed_command_says_its_version(wheel: Path, tmp_path: Path) -> None:
    python = install(wheel, tmp_path / "venv")
    version = wheel.name.split("-")[1]

    said = run([python.with_name("thunder-router"), "--version"], cwd=tmp_path)
    where = run([python, "-c", "import thunder_router as t; print(t.__file__)"], cwd=tmp_path)

    assert version in said
    assert Path(where.strip()).is_relative_to(tmp_path)


def test_the_sdist_builds_and_passes_its_own_tests(sdist: Path, tmp_path: Path) -> None:
    python = install(build_wheel(sdist, tmp_path / "wheel"), tmp_path / "venv")
    # The sources under python/ have no extension beside them: the tests use what is installed.
    quick = "not docker and not engine and not packaging and not e2e"

    said = run([python, "-m", "pytest", "-q", "-m", quick], cwd=sdist)

    assert " passed" in said
    assert " error" not in said


def test_the_sdist_has_no_build_products(sdist: Path) -> None:
    products = [
        path.relative_to(sdist)
        for path in sdist.rglob("*")
        if path.suffix in {".so", ".pyc"} or path.name in {"target", ".venv", ".cache"}
    ]
    assert products == []
