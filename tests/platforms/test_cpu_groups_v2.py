"""Where a profile's group can be made on version 2 of control groups, and where not and why.

Runs where version 2 alone is mounted; elsewhere everything here is skipped.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import scaled

from uncia.bandwidth.profiles.measure import Settings

MS = 1_000_000
TOP = Path("/sys/fs/cgroup")


def controllers(folder: Path) -> list[str]:
    file = folder / "cgroup.controllers"
    return file.read_text().split() if file.exists() else []


pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or "cpu" not in controllers(TOP),
    reason="needs root and version 2 of control groups with the controller cpu",
)

# Moves itself into a group, does what its second argument says, and becomes the engine.
ENTER = """
import os, sys
from pathlib import Path
(Path(sys.argv[1]) / "cgroup.procs").write_text("0")
# Opened before, for whoever may not enter the folder that it is in.
engine = os.open(sys.argv[3], os.O_RDONLY)
if sys.argv[2] == "nobody":
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
os.execve(engine, [sys.argv[3], "cpu", "profile", "--config", "-"], os.environ)
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A group that has ``cpu``, is delegated as by systemd, and is as it was in the end."""
    made = TOP / f"test-place-{os.getpid()}"
    switched = "cpu" not in (TOP / "cgroup.subtree_control").read_text().split()
    if switched:
        (TOP / "cgroup.subtree_control").write_text("+cpu")
    made.mkdir()
    try:
        os.setxattr(made, "user.delegate", b"1")
        yield made
        assert (made / "cgroup.subtree_control").read_text().split() == []
        assert [path for path in made.iterdir() if path.is_dir()] == []
    finally:
        made.rmdir()
        if switched:
            (TOP / "cgroup.subtree_control").write_text("-cpu")


def profile(
    engine: Path, selected: Path, out: Path, who: str = "root", quota_ns: int = 2 * MS
) -> tuple[int, str]:
    """A short profile by a process in a group; its status, and what it said."""
    settings = Settings(period_ns=20 * MS, quota_ns=quota_ns, duration_ns=50 * MS, baseline_ns=0)
    out.mkdir()
    out.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-c", ENTER, selected, who, engine],
        input=json.dumps(settings.config(out, "run")),
        capture_output=True,
        text=True,
        timeout=scaled(240),
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_it_is_below_the_own_group_which_is_as_before(
    group: Path, engine_binary: Path, tmp_path: Path
) -> None:
    status, message = profile(engine_binary, group, tmp_path / "run")
    assert status == 0, message
    assert f'"group":"{group}/uncia-probe-' in message


def test_a_group_that_is_not_delegated_is_left_alone(
    group: Path, engine_binary: Path, tmp_path: Path
) -> None:
    os.removexattr(group, "user.delegate")
    above = (TOP / "cgroup.subtree_control").read_text()
    status, message = profile(engine_binary, group, tmp_path / "run")
    assert status == 2
    assert f"{group} is not delegated" in message
    assert "Delegate=yes" in message
    assert (TOP / "cgroup.subtree_control").read_text() == above


def test_a_quota_above_that_of_a_group_above_is_told(
    group: Path, engine_binary: Path, tmp_path: Path
) -> None:
    # As much as the engine itself needs, which is in the group as well.
    (group / "cpu.max").write_text("20000 20000")
    status, message = profile(engine_binary, group, tmp_path / "run", quota_ns=30 * MS)
    assert status == 2
    assert f"above that of the group {group}, which has 20000 us in 20000 us" in message


def test_who_may_not_write_the_own_group_is_told(
    group: Path, engine_binary: Path, tmp_path: Path
) -> None:
    status, message = profile(engine_binary, group, tmp_path / "run", "nobody")
    assert status == 2
    assert "may not be written" in message


def test_who_shares_the_own_group_is_told(group: Path, engine_binary: Path, tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        (group / "cgroup.procs").write_text(str(other.pid))
        status, message = profile(engine_binary, group, tmp_path / "run")
        assert status == 2
        assert f"{group} has processes of its own" in message
    finally:
        other.kill()
        other.wait()


def test_a_controller_that_the_group_above_keeps_is_told(
    group: Path, engine_binary: Path, tmp_path: Path
) -> None:
    (TOP / "cgroup.subtree_control").write_text("-cpu")
    try:
        status, message = profile(engine_binary, group, tmp_path / "run")
    finally:
        (TOP / "cgroup.subtree_control").write_text("+cpu")
    assert status == 2
    assert f"passes no cpu on to {group}" in message
