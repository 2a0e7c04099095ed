"""Shared by the end-to-end tests of runs: small experiments, and what must not be left of them."""

import hashlib
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import control_groups
import pyarrow.parquet
import yaml
from patience import scaled

from uncia.runs.folder import read_run

TINY = """\
name: tiny
seed: 3
platform: {kind: embedded}
functions:
  hello: {source: hello, memory: 512MB}
experiments:
  warm:
    function: hello
    arrivals: {kind: constant, rate: 50/s, duration: 1s}
    warmup: {kind: burst, sizes: [2]}
  cold:
    function: hello
    settings: {replicas: 4, keep_alive: 50ms}
    arrivals: {kind: constant, rate: 2/s, duration: 2s}
"""

Uncia = Callable[..., "subprocess.Popen[str]"]

# Long enough that it is interrupted halfway on any machine.
LONG = """\
name: long
seed: 3
platform: {kind: embedded}
functions:
  hello: {source: hello, memory: 512MB}
experiments:
  first:
    function: hello
    arrivals: {kind: constant, rate: 20/s, duration: 500ms}
  second:
    function: hello
    arrivals: {kind: constant, rate: 20/s, duration: 10min}
"""

_FUNCTION = """\
name: {name}
description: For a test.
runtimes: {{python: {{handler: main.handler}}}}
parameters: {{}}
sizes: {{test: {{}}, small: {{}}, large: {{}}}}
answer: {{text: Whatever it says.}}
memory: 256MB
timeout: 2s
"""


def function(folder: Path, code: str) -> Path:
    """A function of the test's own, in Python."""
    (folder / "python").mkdir(parents=True)
    (folder / "function.yaml").write_text(_FUNCTION.format(name=folder.name))
    (folder / "python" / "main.py").write_text(code)
    return folder


def experiment(
    folder: Path, source: str, arrivals: str, *, expect: str = "{}", platform: str = ""
) -> Path:
    """An experiment file with one experiment, ``only``, on one function."""
    path = folder / "experiment.yaml"
    path.write_text(
        f"name: sample\nseed: 1\nplatform: {{kind: embedded{platform}}}\n"
        f"functions:\n  f: {{source: {source}}}\n"
        "experiments:\n  only:\n    function: f\n"
        f"    arrivals: {arrivals}\n    expect: {expect}\n"
    )
    return path


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def finish(process: "subprocess.Popen[str]", timeout_s: float = 240) -> Ended:
    """Wait for a command to end."""
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Ended(process.returncode, out, err)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait until something holds while a command runs."""
    deadline = time.monotonic() + scaled(180)
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def sending(folder: Path, experiment: str) -> Callable[[], bool]:
    """Whether rows of an experiment have reached the disk."""

    def condition() -> bool:
        # The stream's head alone is smaller than this.
        parts = list(folder.glob(f"invocations.*-{experiment}.arrows"))
        return bool(parts) and parts[0].stat().st_size > 20_000

    return condition


def rows(folder: Path, table: str = "invocations") -> list[dict[str, object]]:
    """A table of a run as Python objects."""
    result: list[dict[str, object]] = pyarrow.parquet.read_table(
        folder / f"{table}.parquet"
    ).to_pylist()
    return result


def status(folder: Path) -> str:
    """What ``run.yaml`` says of the run."""
    return str(read_run(folder)["status"])


def description(folder: Path) -> dict[str, object]:
    """``run.yaml`` as plain data."""
    data: dict[str, object] = yaml.safe_load((folder / "run.yaml").read_text())
    return data


def left_behind(state: Path) -> list[str]:
    """Everything of a run that should be gone: processes, cgroups, mounts, journals, state."""
    result = [
        f"process {pid}: {line}"
        for pid, line, environment in _processes()
        if str(state) in line or str(state.parent) in environment
    ]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    result += [f"mount {line}" for line in mounts if str(state) in line]
    for name in ("journal", "embedded"):
        folder = state / name
        if folder.is_dir():
            result += [f"{name} {entry.name}" for entry in folder.iterdir()]
    return result


def traces(folder: Path, state: Path) -> set[str]:
    """Cgroups and processes of the instances of a run's embedded platform.

    Both carry a name made of the platform's state folder, so other platforms on this machine do
    not disturb. Tests that look while the run goes on see that the name is the right one.
    """
    platform = state / "embedded" / str(description(folder)["run"])
    name = "uncia-" + hashlib.sha256(os.fsencode(platform)).hexdigest()[:16]
    groups = {str(path) for path in control_groups.named(name)}
    return groups | {line for _, line, _ in _processes() if f"{name}/" in line}


def _processes() -> list[tuple[int, str, str]]:
    """Number, command line and environment of every process but this one."""
    result = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line, environment = (
                    (entry / name).read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    for name in ("cmdline", "environ")
                )
            except OSError:
                continue
            result.append((int(entry.name), line, environment))
    return result
