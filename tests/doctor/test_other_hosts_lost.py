"""Monitors on other machines that are given up or lost, and clocks there that go wrong.

A program stands for ssh, so no server is needed.
"""

import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import scaled

from uncia.doctor import remote, ssh
from uncia.doctor.everywhere import Everywhere
from uncia.doctor.monitors import Asked, Host, start_timeout_s
from uncia.doctor.remote import RemoteMonitors
from uncia.doctor.ssh import Address
from uncia.errors import UnciaError
from uncia.report.monitored import clock_sentence
from uncia.version import __version__

_ASKED = Asked("machine", 200_000_000, ())

# The command is the last argument; the engine is never there.
_SLOW = """\
#!/bin/sh
for command; do :; done
case "$command" in
*"cat > "*) touch {folder}/copying; exec sleep 600 ;;
esac
echo "{mark} Linux there"; echo "{mark} {folder}/there"; exec cat > /dev/null
"""

_HERE = """\
#!/bin/sh
for command; do :; done
exec sh -c "$command"
"""

# Its clock is an hour ahead while it watches, and right before and after that.
_ENGINE = """\
#!{python}
import json, os, sys, time
folder = {folder!r}
there = lambda name: os.path.exists(os.path.join(folder, name))
def tell(event, **values):
    print(json.dumps({{"event": event, **values}}), file=sys.stderr, flush=True)
tell("ready", hostname="there", kernel="6", cpus=1, version="{version}")
watches = False
for line in sys.stdin:
    asked = json.loads(line)
    if "clock" in asked:
        ahead = 3_600 * 10**9 if watches and not there("right") else 0
        now = time.time_ns() + ahead
        tell("clock", id=asked["clock"], received_unix_ns=now, sent_unix_ns=now)
    elif "offset_ns" in asked:
        if asked["offset_ns"] > 10**12:
            open(os.path.join(folder, "slewed"), "w").close()
    else:
        watches = True
        tell("started", monitors=["machine"])
"""


def _wait(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + scaled(60)
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def _stands_for_ssh(tmp_path: Path, text: str) -> str:
    """Make a program of that name; returns the PATH that has it."""
    tools = tmp_path / "tools"
    tools.mkdir()
    program = tools / "ssh"
    program.write_text(text)
    program.chmod(0o755)
    return f"{tools}:{os.environ['PATH']}"


def _run_by(pattern: str) -> list[str]:
    """Return the processes whose settings have this."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and pattern.encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_an_interrupt_while_engines_are_copied_ends_all(tmp_path: Path) -> None:
    path = _stands_for_ssh(tmp_path, _SLOW.format(folder=tmp_path, mark=ssh.MARK))
    out = tmp_path / "out"
    out.mkdir()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "uncia", "monitor", "-m", "machine", "--out", str(out)),
            *("--host", "ssh://node1", "--host", "ssh://node2"),
        ],
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        _wait((tmp_path / "copying").exists)
        process.send_signal(signal.SIGINT)
        # The copy alone would take ten minutes.
        output, _ = process.communicate(timeout=scaled(60))
    finally:
        process.kill()
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert list(out.iterdir()) == []
    _wait(lambda: not _run_by(f"PATH={path}"))


def test_what_keeps_one_host_from_its_start_ends_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = threading.Event()
    ended = []

    def start(self: RemoteMonitors, *_: object) -> None:
        if self.address.name == "full":
            started.wait(scaled(60))
            raise failure
        self.watching = ["machine"]
        started.set()

    monkeypatch.setattr(RemoteMonitors, "start", start)
    monkeypatch.setattr(RemoteMonitors, "stop", lambda self: ended.append(self.address.name) or [])
    hosts = (Host("ssh://node"), Host("ssh://full"), Host("http://none"))
    asked = [Asked("machine", 200_000_000, (), hosts=hosts)]
    failure: BaseException = OSError(errno.EMFILE, "Too many open files")
    monitors = Everywhere.start(asked, lambda number: tmp_path / str(number), time.time_ns())
    none, full = monitors.sentences
    assert "names no machine" in none
    assert full == "host full: ssh cannot be run: Too many open files"
    assert not ended
    # What no sentence can be made of leaves none that had started.
    failure = RuntimeError("can't start new thread")
    with pytest.raises(RuntimeError, match="new thread"):
        Everywhere.start(asked, lambda number: tmp_path / str(number), time.time_ns())
    assert sorted(ended) == ["full", "node"]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteMonitors:
    """Monitors that watch, by a clock that is set."""
    monkeypatch.setenv("PATH", _stands_for_ssh(tmp_path, _HERE))
    monkeypatch.setattr(remote, "_ASK_EVERY_S", 0.05)
    program = tmp_path / "engine"
    program.write_text(
        _ENGINE.format(python=sys.executable, folder=str(tmp_path), version=__version__)
    )
    program.chmod(0o755)
    monitors = RemoteMonitors(Address("node"), str(program))
    monitors.start([_ASKED], tmp_path / "machine.arrows", time.time_ns(), None)
    _wait((tmp_path / "slewed").exists)
    return monitors


def test_a_clock_that_was_wrong_meanwhile_is_in_the_bound(
    there: RemoteMonitors, tmp_path: Path
) -> None:
    (tmp_path / "right").touch()
    assert there.stop() == []
    clock = there.facts["clock"]
    assert abs(clock["after"]["offset_ns"]) < 10**12
    assert clock["after"]["round_trips"] == 20
    assert clock["bound_ns"] > 10**12


def test_a_clock_that_was_not_measured_at_the_end_has_no_bound(
    there: RemoteMonitors, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert there.facts["clock"]["bound_ns"] is None
    # The last question gets no answer.
    monkeypatch.setattr(there, "_measure", lambda *_: None)
    assert there.stop() == []
    clock = there.facts["clock"]
    assert clock["after"]["round_trips"] < 20
    assert clock["bound_ns"] is None
    assert "and unknown since" in clock_sentence("node", clock)


# Its monitors begin once it was asked for the time often enough.
_SLOW_ENGINE = """\
#!{python}
import json, sys, time
def tell(event, **values):
    print(json.dumps({{"event": event, **values}}), file=sys.stderr, flush=True)
tell("ready", hostname="there", kernel="6", cpus=1, version="{version}")
asked_since = None
for line in sys.stdin:
    asked = json.loads(line)
    if "clock" in asked:
        now = time.time_ns()
        tell("clock", id=asked["clock"], received_unix_ns=now, sent_unix_ns=now)
        if asked_since is not None:
            asked_since += 1
            if asked_since == {questions}:
                tell("started", monitors=["command"])
    elif "monitors" in asked:
        asked_since = 0
"""


def _slow_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, questions: int) -> RemoteMonitors:
    monkeypatch.setenv("PATH", _stands_for_ssh(tmp_path, _HERE))
    monkeypatch.setattr(remote, "_ASK_EVERY_S", 0.05)
    program = tmp_path / "engine"
    program.write_text(
        _SLOW_ENGINE.format(python=sys.executable, version=__version__, questions=questions)
    )
    program.chmod(0o755)
    return RemoteMonitors(Address("node"), str(program))


def test_monitors_that_start_slowly_are_waited_for_and_their_engine_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine ends when it hears nothing for 30 s, and programs may take 70 s each to begin."""
    limits = []
    monkeypatch.setattr(
        remote, "start_timeout_s", lambda asked: limits.append(start_timeout_s(asked)) or limits[0]
    )
    monitors = _slow_engine(tmp_path, monkeypatch, questions=3)
    asked = [Asked("command", command=["true"]), Asked("bpftrace", program="BEGIN {}")]
    monitors.start(asked, tmp_path / "machine.arrows", time.time_ns(), None)
    assert monitors.watching == ["command"]
    assert limits == [start_timeout_s(asked)]
    assert monitors.stop() == []


def test_monitors_that_do_not_start_on_a_host_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "start_timeout_s", lambda asked: 0.5 * len(asked))
    monitors = _slow_engine(tmp_path, monkeypatch, questions=1_000_000)
    with pytest.raises(UnciaError, match=r"host node: the monitors did not start within 0\.5 s"):
        monitors.start([_ASKED], tmp_path / "machine.arrows", time.time_ns(), None)


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_an_engine_that_does_not_come_leaves_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    monkeypatch.setattr(ssh, "_WAIT_S", 1)
    folder = tmp_path / "there"
    folder.mkdir()
    command = shlex.split(ssh.copy_script("0"))
    assert command[0] == "sh"
    process = subprocess.Popen(
        [shell, *command[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(ssh.MARK)
    made = Path(process.stdout.readline().split()[1])
    assert made.parent == folder
    copying = subprocess.Popen(["sh", "-c", ssh.upload(str(made))], stdin=subprocess.PIPE)
    # Nothing is said on either connection, and they do not end.
    assert process.wait(scaled(60)) == 1
    assert copying.wait(scaled(60)) == 124
    assert list(folder.iterdir()) == []
    for each in (process, copying):
        assert each.stdin is not None
        each.stdin.close()
    process.stdout.close()
    assert not _run_by(f"TMPDIR={folder}")
