"""What `make dist` builds works where there is no checkout."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parent.parent

# Neither this checkout's packages nor the settings of the make that runs the tests.
FOREIGN = ("PYTHONPATH", "UNCIA_ENGINE", "VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in FOREIGN}

pytestmark = pytest.mark.skipif(
    not (ROOT / ".venv/bin/maturin").exists(),
    reason="make install-dev has not run in this checkout",
)


def run(*command: str | Path, folder: Path, timeout: float = 300) -> str:
    """Run a command in a folder; return what it printed."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a source distribution; return the folder that it consists of."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return source


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run("make", "dist", f"DIST={folder}", folder=ROOT)
    return folder


def test_wheels_run_the_demo_without_a_checkout(dist: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "environment", folder=tmp_path)
    programs = tmp_path / "environment/bin"
    pip = (programs / "python", "-m", "pip", "install", "--quiet", "--no-compile")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements.lock", folder=tmp_path)
    run(*pip, "--no-deps", *sorted(dist.glob("*.whl")), folder=tmp_path)
    run(programs / "python", "-m", "pip", "check", folder=tmp_path)
    output = run(programs / "uncia", "demo", "--quick", folder=tmp_path)
    folder = tmp_path / "results/demo-quick"
    assert "A million requests like these cost" in output
    assert (folder / "report.html").stat().st_size > 100_000
    rows = pq.read_table(folder / "invocations.parquet", columns=["outcome", "start"]).to_pylist()
    assert len(rows) > 400
    assert {row["outcome"] for row in rows} == {"ok"}
    assert {row["start"] for row in rows} >= {"cold", "warm"}


def test_the_source_distribution_builds_the_same_wheel(dist: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("uncia-*.tar.gz")
    source = unpack(archive, tmp_path)
    (built,) = WheelBuilder(str(source)).build(directory=str(tmp_path), versions=["standard"])
    (direct,) = dist.glob("uncia-*.whl")
    names = [sorted(zipfile.ZipFile(wheel).namelist()) for wheel in (built, direct)]
    assert names[0] == names[1]


def test_the_source_distribution_of_the_engine_is_complete(dist: Path, tmp_path: Path) -> None:
    (archive,) = dist.glob("uncia_engine-*.tar.gz")
    source = unpack(archive, tmp_path)
    # Fails if a crate of the workspace is missing, or if the lock file does not fit.
    run("cargo", "metadata", "--locked", "--format-version=1", folder=source)
    for crate in (source / "crates").iterdir():
        packed = {path.relative_to(crate) for path in crate.rglob("*") if path.is_file()}
        listed = run("git", "ls-files", ".", folder=ROOT / "crates" / crate.name).splitlines()
        # maturin puts this one on top.
        missing = {Path(name) for name in listed} - packed - {Path("pyproject.toml")}
        assert not missing, f"{crate.name}: {missing}"
