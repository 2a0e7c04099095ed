"""What is in which wheel: the core works alone, and the extras add what it leaves out."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "python"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both wheels, unpacked, by name."""
    unpacked = {}
    for name, source in (("uncia", ROOT), ("uncia-extras", ROOT / "extras")):
        folder = tmp_path_factory.mktemp(name)
        for built in WheelBuilder(str(source)).build(directory=str(folder), versions=["standard"]):
            zipfile.ZipFile(built).extractall(folder / "site")
        unpacked[name] = folder / "site"
    return unpacked


def modules(site: Path) -> set[str]:
    """The files of the package `uncia`, without data."""
    files = (path.relative_to(site).as_posix() for path in site.glob("uncia/**/*.py"))
    return {name for name in files if not name.startswith("uncia/_data/")}


def uncia(site: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command, with the package that is in `site`."""
    return subprocess.run(
        [sys.executable, "-m", "uncia", *arguments],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_each_module_is_in_one_wheel(wheels: dict[str, Path]) -> None:
    core, extras = (modules(site) for site in wheels.values())
    assert not core & extras
    assert core | extras == modules(PACKAGE)
    assert "uncia/traces/synth/__init__.py" in extras


def test_the_core_works_without_the_extras(wheels: dict[str, Path]) -> None:
    site = wheels["uncia"]
    traces = uncia(site, "trace", "list")
    assert traces.returncode == 0, traces.stderr
    assert "huawei2025" in traces.stdout
    assert "ibm2026" not in traces.stdout
    commands = uncia(site, "cpu", "--help")
    assert commands.returncode == 0, commands.stderr
    assert "predict" in commands.stdout
    assert "explain" not in commands.stdout
    missing = uncia(site, "trace", "import", "ibm2026", "x.pickle", "--out", "y")
    assert missing.returncode != 0
    assert "uncia[extras]" in missing.stderr
