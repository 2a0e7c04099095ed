"""Control groups of containers that this user may not remove, or that are systemd's."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from uncia.platforms import docker, docker_left, groups
from uncia.platforms.journal import Resource

GROUP = Resource("docker", "group", "docker-f")
SLICE = Resource("docker", "group", "docker-f", {docker_left.SLICE: "uncia_docker_f.slice"})


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the only tree of control groups."""

    def trees(**_: bool) -> list[Path]:
        return [tmp_path / "tree"]

    monkeypatch.setattr(groups, "_trees", trees)
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.fixture
def group(tree: Path) -> Callable[..., Path]:
    def make(path: str, processes: str) -> Path:
        folder = tree / path
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").write_text(processes)
        return folder

    return make


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A user who may not remove groups, nor kill; the processes that it tried to."""
    killed: list[int] = []

    def kill(pid: int, _: int) -> None:
        killed.append(pid)
        raise PermissionError(errno.EPERM, "not permitted")

    def rmdir(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "denied")

    def sleep(_: float) -> None:
        raise AssertionError("what is forbidden is not tried again")

    def access(*_: object) -> bool:
        return False

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(os, "rmdir", rmdir)
    monkeypatch.setattr(os, "access", access)
    monkeypatch.setattr(groups.time, "sleep", sleep)
    return killed


def test_an_empty_group_of_the_engine_s_is_as_good_as_gone(
    group: Callable[..., Path], forbidden: list[int]
) -> None:
    group("uncia-docker-f", "")
    lines: list[str] = []
    assert docker.clean([GROUP], lines.append) == [GROUP]
    assert (lines, forbidden) == ([], [])


def test_a_group_with_processes_that_one_may_not_kill_is_said(
    group: Callable[..., Path], forbidden: list[int]
) -> None:
    group("uncia-docker-f/x", "77\n0\n78\n")
    lines: list[str] = []
    assert docker.clean([GROUP], lines.append) == []
    assert lines == ["docker: group docker-f could not be removed"]
    # 0 would be the group of processes that this one is in.
    assert forbidden == [77, 78]


def test_a_process_of_another_pid_namespace_is_in_the_group_all_the_same(
    group: Callable[..., Path], forbidden: list[int]
) -> None:
    group("uncia-docker-f", "0\n")
    assert docker.clean([GROUP], lambda _: None) == []
    assert forbidden == []


@pytest.mark.parametrize(
    ("user", "place", "words"),
    [(0, "", ""), (1000, "user.slice/user-1000.slice/user@1000.service/", "--user ")],
)
def test_a_slice_is_stopped_by_the_systemd_that_made_it(
    group: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    user: int,
    place: str,
    words: str,
) -> None:
    folder = group(f"{place}uncia_docker_f.slice", "")
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/said\nrm -r '{folder}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(os, "getuid", lambda: user)
    assert docker.clean([SLICE], lambda _: None) == [SLICE]
    assert not folder.exists()
    # What is gone is not stopped again.
    assert docker.clean([SLICE], lambda _: None) == [SLICE]
    assert (tmp_path / "said").read_text() == f"{words}stop uncia_docker_f.slice\n"


def test_groups_of_an_engine_without_root_are_watched() -> None:
    assert docker.CAPABILITIES.groups("run", "a-1") == [
        "/uncia-docker-a-1-*/*",
        "/uncia_docker_a_1_*.slice/*",
        "/user.slice/user-*.slice/user@*.service/uncia_docker_a_1_*.slice/*",
    ]
