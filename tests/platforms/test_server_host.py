"""The program that stands before the servers of frameworks."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from patience import scaled

from uncia.platforms import bare
from uncia.platforms.shims import native_host, reaper

# As AWS's emulator: a runtime in a process group of its own, which has started another that went
# to a session of its own and whose parent has ended.
SERVER = """
import http.server, os, subprocess, sys

RUNTIME = '''
import os, time
if os.fork() == 0:
    if os.fork():
        os._exit(0)
    os.setsid()
open(f"{os.getpid()}.pid", "w").close()
time.sleep(600)
'''

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        event = self.rfile.read(int(self.headers["content-length"])).decode()
        if "orphans" in event:
            for _ in range(5):
                subprocess.run(["sh", "-c", "sleep 0 &"])
            times = '"started": 0, "ended": 0, "user": 0, "system": 0'
            answer = f'{{{times}, "result": 0}}'.encode()
            self.send_response(200)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            return
        process = subprocess.Popen([sys.executable, "-c", RUNTIME], process_group=0)
        if "exit" in event:
            while len([name for name in os.listdir() if name.endswith(".pid")]) < 2:
                pass
            os._exit(3)
        process.wait()

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@contextmanager
def host(folder: Path, timeout_s: float) -> Iterator[str]:
    """The address of a host of such servers."""
    (folder / "server.py").write_text(SERVER)
    server = {
        "name": "server",
        "command": [sys.executable, "server.py", "{port}"],
        "environment": {},
        "variables": dict(os.environ),
        "ready": None,
        "files": {},
    }
    config = {
        "servers": [server],
        "isolated": False,
        "path": "/",
        "serial": 1,
        "folder": str(folder),
        "timeout": timeout_s,
        "groups": [],
    }
    process = subprocess.Popen(
        [sys.executable, str(bare.SHIMS / "server_host.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        print(json.dumps(config), file=process.stdin, flush=True)
        yield f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        process.stdin.close()


def alive(folder: Path) -> list[int]:
    """The processes of runtimes that have begun, and run."""
    pids = [int(path.stem) for path in folder.glob("*.pid")]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + scaled(60)
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def states() -> list[str]:
    """The states of all that descends from this process, such as S and Z."""
    pids = [os.getpid()]
    for pid in pids:
        pids += reaper.children(pid)
    found = []
    for pid in pids[1:]:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        found += re.findall(r"\) (\w) ", stat)[-1:]
    return found


def test_a_function_that_is_late_ends_with_all_that_it_started(tmp_path: Path) -> None:
    with host(tmp_path, 2.0) as address:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(address, b"{}")
        assert caught.value.code == 504
        assert len(list(tmp_path.glob("*.pid"))) == 2
        assert alive(tmp_path) == []


def test_a_function_that_is_served_ends_with_its_host(tmp_path: Path) -> None:
    with host(tmp_path, 600.0) as address:
        code = f"import urllib.request; urllib.request.urlopen({address!r}, b'{{}}')"
        client = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        wait(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        assert len(alive(tmp_path)) == 2
    client.wait()
    assert alive(tmp_path) == []


def test_what_loses_its_parent_is_waited_for(tmp_path: Path) -> None:
    with host(tmp_path, 600.0) as address:
        for _ in range(4):
            with urllib.request.urlopen(address, b'"orphans"') as answer:
                assert json.load(answer) == 0
        wait(lambda: "Z" not in states())


def test_a_server_that_ends_leaves_nothing_while_its_host_runs(tmp_path: Path) -> None:
    with host(tmp_path, 600.0) as address:
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(address, b'"exit"')
        assert caught.value.code == 502
        assert len(list(tmp_path.glob("*.pid"))) == 2
        wait(lambda: alive(tmp_path) == [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has processes that others may not end")
def test_what_may_not_be_ended_keeps_nothing_else_alive() -> None:
    code = """
import os, resource, subprocess
from uncia.platforms.shims import reaper

silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
theirs = subprocess.Popen(["sleep", "600"], **silent)
os.setresuid(0, 65534, 0)
mine = subprocess.Popen(["sleep", "600"], **silent)
os.seteuid(0)
reaper.children(os.getpid())  # loads what others may not read
print(theirs.pid, mine.pid, flush=True)
os.setresuid(65534, 65534, 65534)
reaper.leave()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=scaled(60),
    )
    theirs, mine = map(int, done.stdout.split())
    try:
        assert (done.returncode, done.stderr) == (0, "")
        assert Path(f"/proc/{theirs}").exists(), "root's goes on"
        assert not Path(f"/proc/{mine}").exists()
    finally:
        os.kill(theirs, signal.SIGKILL)


@pytest.mark.parametrize(
    ("program", "sentence"), [("nothing-of-this-name", "No such file"), ("./no", "cannot be start")]
)
def test_what_cannot_be_started_is_an_error(tmp_path: Path, program: str, sentence: str) -> None:
    with pytest.raises(OSError, match=sentence):
        reaper.start([program], dict(os.environ), cwd=tmp_path)
    assert states() == []


def test_nothing_is_started_for_a_parent_that_has_ended(tmp_path: Path) -> None:
    code = (
        "import sys; from uncia.platforms.shims import reaper;"
        " reaper._reap(0, None, '/bin/touch', ['touch', sys.argv[1]], {})"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "there"], check=False)
    assert (done.returncode, list(tmp_path.iterdir())) == (1, [])


def test_what_a_reaper_uses_itself_is_not_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[int, int]] = []

    def end_tree(pid: int, real: Callable[[int], tuple[int, int]] = reaper.end_tree) -> Any:
        ended.append(real(pid))
        return ended[-1]

    monkeypatch.setattr(reaper, "end_tree", end_tree)
    config = {"command": ["sleep", "999"], "folder": tmp_path, "environment": dict(os.environ)}
    process = native_host.Process(config)
    deadline = time.monotonic() + scaled(30)
    while sum(process.spent.times()) == 0:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    used, ((user, system),), spent = process.end(), ended, process.spent.times()
    assert 0 < sum(spent) <= user + system
    assert sum(used) == user + system - sum(spent)
    assert min(used) >= 0


def test_a_program_has_its_arguments_and_ends_as_it_does(tmp_path: Path) -> None:
    code = 'test "$0 $A $PWD" = "sh x $1" && cat && kill -9 $$'
    command = ["sh", "-c", code, "sh", str(tmp_path.resolve())]
    environment = {"A": "x", "PATH": os.environ["PATH"]}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with reaper.start(command, environment, cwd=tmp_path, **pipes) as process:
        assert process.communicate(b"text") == (b"text", None)
    assert process.returncode == -9
