"""The journal survives the run that wrote it, and tells the living from the dead."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncia.errors import UnciaError
from uncia.platforms import journal, processes
from uncia.platforms.journal import Journal, Resource


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "uncia"


@pytest.fixture
def crashed(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A journal whose process was killed with -9, and the sleeping child that it left."""
    script = textwrap.dedent(
        """
        import subprocess, sys, time
        from pathlib import Path
        from uncia.platforms import processes
        from uncia.platforms.journal import Journal, Resource
        journal = Journal("dead-run", Path(sys.argv[1]))
        child = subprocess.Popen(["sleep", "600"])
        journal.created(
            Resource("local", "process", str(child.pid), processes.identify(child.pid).detail())
        )
        print(child.pid, flush=True)
        time.sleep(600)
        """
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert runner.stdout is not None
    child = int(runner.stdout.readline())
    yield journal.journal_folder() / "dead-run.jsonl", child
    for pid in (runner.pid, child):
        identity = processes.identify(pid)
        if identity is not None:
            os.kill(pid, signal.SIGKILL)
    runner.wait()
    runner.stdout.close()


def kill_runner_of(path: Path) -> None:
    first = json.loads(path.read_text().splitlines()[0])
    os.kill(first["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while path in journal.living():
        assert time.monotonic() < deadline, "the lock outlives its process"
        time.sleep(0.01)


def test_what_is_created_is_outstanding_until_removed() -> None:
    kept, gone = Resource("embedded", "function", "a"), Resource("embedded", "function", "b")
    opened = Journal("run-1", None)
    opened.created(kept)
    opened.created(gone)
    opened.removed(gone)
    assert journal.read(opened.path).outstanding == [kept]
    opened.close()
    assert opened.path.exists(), "something is outstanding, so the journal stays"


def test_a_journal_with_nothing_outstanding_is_deleted() -> None:
    opened = Journal("run-1", None)
    resource = Resource("embedded", "engine", "x", {"pid": 1})
    opened.created(resource)
    opened.removed(Resource("embedded", "engine", "x"))
    opened.close()
    assert not opened.path.exists()


def test_later_detail_replaces_the_earlier() -> None:
    opened = Journal("run-1", None)
    opened.created(Resource("embedded", "engine", "x"))
    opened.created(Resource("embedded", "engine", "x", {"pid": 7}))
    assert journal.read(opened.path).outstanding == [
        Resource("embedded", "engine", "x", {"pid": 7})
    ]
    opened.close()


def test_a_living_run_is_no_orphan() -> None:
    opened = Journal("run-1", None)
    opened.created(Resource("embedded", "engine", "x"))
    assert list(journal.orphans()) == []
    assert journal.living() == [opened.path]
    opened.close()
    assert journal.living() == []
    orphan = next(journal.orphans())
    assert orphan.story.run == "run-1"
    orphan.close()


def test_a_run_killed_with_9_is_an_orphan(crashed: tuple[Path, int], tmp_path: Path) -> None:
    path, child = crashed
    assert journal.living() == [path]
    kill_runner_of(path)
    orphan = next(journal.orphans())
    assert orphan.story.folder == tmp_path.resolve()
    assert [resource.id for resource in orphan.story.outstanding] == [str(child)]
    orphan.close()


def test_settling_part_of_it_keeps_the_rest() -> None:
    opened = Journal("run-1", None)
    first, second = Resource("p", "function", "a"), Resource("p", "function", "b")
    opened.created(first)
    opened.created(second)
    opened.close()
    orphan = next(journal.orphans())
    assert orphan.settle([first]) is False
    orphan.close()
    assert journal.read(opened.path).outstanding == [second]
    orphan = next(journal.orphans())
    assert orphan.settle([second]) is True
    orphan.close()
    assert not opened.path.exists()


@given(cut=st.integers(min_value=1, max_value=400))
def test_a_journal_cut_anywhere_tells_only_whole_lines(cut: int) -> None:
    opened = Journal(f"cut-{time.monotonic_ns()}", None)
    resources = [Resource("p", "function", name) for name in "abc"]
    for resource in resources:
        opened.created(resource)
    opened.close()
    content = opened.path.read_bytes()
    opened.path.write_bytes(content[: max(0, len(content) - cut)])
    for orphan in journal.orphans():
        assert orphan.story.outstanding == resources[: len(orphan.story.outstanding)]
        left = orphan.story.outstanding
        assert orphan.settle(left[1:]) is (not left)
        orphan.close()
        if left:
            # What is appended after a cut line is whole again.
            assert journal.read(orphan.path).outstanding == left[:1]
            orphan.path.unlink()


def test_a_state_folder_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(UnciaError, match="cannot be written") as caught:
        Journal("run-1", None)
    assert "XDG_STATE_HOME" in str(caught.value)


def test_a_relative_state_home_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert journal.state_home() == Path.home() / ".local" / "state" / "uncia"


def test_an_identity_is_more_than_a_number() -> None:
    child = subprocess.Popen(["sleep", "600"])
    identity = processes.identify(child.pid)
    assert identity is not None
    assert processes.alive(identity)
    other = processes.Identity(identity.pid, identity.start_ticks + 1, identity.boot)
    assert not processes.alive(other)
    assert processes.end(other), "a process that is not there is gone"
    assert child.poll() is None, "and another with its number is not touched"
    assert processes.end(identity)
    child.wait()
    assert processes.identify(child.pid) is None


def test_a_process_that_ignores_sigterm_is_killed() -> None:
    script = (
        "import signal, time; signal.signal(15, signal.SIG_IGN);print(flush=True); time.sleep(600)"
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    identity = processes.identify(child.pid)
    assert identity is not None
    assert processes.end(identity, grace_s=0.1)
    assert child.wait() == -signal.SIGKILL
    child.stdout.close()


def test_processes_are_found_by_an_argument(tmp_path: Path) -> None:
    argument = str(tmp_path / "state of a run")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", argument])
    try:
        deadline = time.monotonic() + 60
        # Between fork and exec the child still shows its parent's command line.
        while [item.pid for item in processes.with_argument(argument)] != [child.pid]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert list(processes.with_argument(argument + "x")) == []
    finally:
        child.kill()
        child.wait()
