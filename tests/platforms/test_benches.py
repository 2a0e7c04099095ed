"""Benches of the platform: mistakes are sentences, and SIGTERM leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from uncia.platforms import processes
from uncia.settings import RUNTIMES

BENCHES = Path(__file__).resolve().parents[2] / "benches/platform"
PATIENCE_S = 60


def bench(name: str, *arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(BENCHES / name), *arguments]
    environment = {**os.environ, "COLUMNS": "1000"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def test_kinds_of_starts_are_told() -> None:
    kinds = [*RUNTIMES["python"].start_from, *(f"node:{it}" for it in RUNTIMES["node"].start_from)]
    process = bench("starts.py", "--from", "bogus")
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "invalid choice: 'bogus'" in errors
    assert all(kind in errors for kind in kinds)
    out, _ = bench("starts.py", "--help").communicate()
    assert ", ".join(kinds) in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("starts.py", "--no-peers", "--starts", "100000"),
        ("aged.py", "--after", "1000000000"),
    ],
)
def test_sigterm_ends_what_a_bench_has_started(
    arguments: tuple[str, ...], engine_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNCIA_ENGINE", str(engine_binary))
    process = bench(*arguments)
    engines: list[processes.Identity] = []
    try:
        engines = wait_for_engines(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
        deadline = time.monotonic() + PATIENCE_S
        while any(map(processes.alive, engines)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(processes.alive, engines))
    finally:
        process.kill()
        for engine in engines:
            processes.end(engine)
        process.communicate()


def wait_for_engines(process: "subprocess.Popen[str]") -> list[processes.Identity]:
    """The engines that a bench has started and that have started something, once there are any."""
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        engines = [pid for pid in children(process.pid) if children(pid)]
        identities = [processes.identify(pid) for pid in engines]
        if known := [it for it in identities if it is not None]:
            return known
        time.sleep(0.05)
    raise AssertionError(f"no engine was started: {process.communicate()[1]}")


def children(pid: int) -> list[int]:
    """What a process's threads have started; nothing if it is gone."""
    try:
        lists = [(task / "children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]
