"""Checks of programs that Uncia starts: servers of services, what traces branches, what watches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from uncia import engine
from uncia.doctor.monitors import Asked, Monitors
from uncia.doctor.report import Check
from uncia.errors import UnciaError

_BPF: Final = "uncia-bpf"
_BPF_TIMEOUT_S: Final = 20
_BPFTRACE: Final = "bpftrace"
_BPFTRACE_NOISE: Final = "couldn't set RLIMIT_MEMLOCK"
"""It wants more locked memory than it may have, and needs none."""
_DOCKER_TIMEOUT_S: Final = 5.0
_UNCOUNTED: Final = "does not count"
"""In sentences of the monitor ``resctrl`` about events that there are none of."""
_BANDWIDTH: Final = "mbm_total_bytes"
_OCCUPANCY: Final = "llc_occupancy"


def _service(name: str, program: str, find: Callable[[], Path]) -> Check:
    """Check the server of a service, which runs with one of their own start.

    Args:
        name: the service's.
        program: the server's.
        find: raises UnciaError where there is none.
    """
    try:
        path = find()
    except UnciaError as error:
        return Check(
            f"service-{name}",
            "missing",
            f"{error.message[0].upper()}{error.message[1:]}.",
            f"Experiment files with `services: {{{name}: {{}}}}` need one that exists.",
            error.hint or "",
        )
    return Check(f"service-{name}", "ok", f"{program} at {path}.")


def program_checks(*, is_bpf_tried: bool = True) -> list[Check]:
    """Check servers of services, frameworks, Docker, and what `uncia branches` and monitors take.

    Args:
        is_bpf_tried: whether the monitors ``schedule``, ``bpftrace`` and ``resctrl`` are tried;
            else there are no checks of them.
    """
    from uncia.services import docker_registry, redis_server, versitygw

    return [
        _service("store", "versitygw", versitygw.find),
        _service("registry", docker_registry.PROGRAM.name, docker_registry.PROGRAM.find),
        _service("documents", redis_server.PROGRAM.name, redis_server.PROGRAM.find),
        _frameworks(),
        _docker(),
        _branches(),
        *([_bpf(), _bpftrace(), resctrl()] if is_bpf_tried else []),
    ]


def _frameworks() -> Check:
    """List the frameworks of the platform ``server``, of which no other platform needs any."""
    from uncia.platforms import frameworks

    installed, absent = [], []
    for name in frameworks.names():
        try:
            frameworks.get(name).installed()
        except UnciaError:
            absent.append(name)
        else:
            installed.append(name)
    can = f"can serve functions by {' and '.join(installed)}" if installed else "has no framework"
    finding = f"The platform server {can}."
    if absent:
        finding += f" Not installed: {', '.join(absent)} ({frameworks.INSTALL})."
    return Check("frameworks", "ok", finding)


def _docker() -> Check:
    """Check the Engine of the platform ``docker``, which no other platform needs."""
    from uncia.platforms import docker_socket

    try:
        path = docker_socket.chosen()
        info = docker_socket.ready(path, _DOCKER_TIMEOUT_S)
    except UnciaError as error:
        return Check(
            "docker",
            "missing",
            f"{error.message[0].upper()}{error.message[1:]}.",
            "Functions do not run on the platform docker.",
            error.hint or "",
        )
    parts = [f"version {info['Version']}"]
    for name, key in (("storage", "Driver"), ("control groups by", "CgroupDriver")):
        parts += [f"{name} {info[key]}"] if info.get(key) else []
    finding = f"An Engine of Docker answers at {path}: {', '.join(parts)}."
    return Check("docker", "ok", finding)


def _branches() -> Check:
    """Check what `uncia branches` takes: QEMU's user mode, a C compiler, and valgrind."""
    from uncia.locality import tools

    lacking = []
    for check in (tools.require_architecture, tools.QEMU.find, tools.compiler, tools.VALGRIND.find):
        try:
            check()
        except UnciaError as error:
            lacking.append(error)
    if not lacking:
        return Check(
            "branches", "ok", "Branches are traced by QEMU, and caches simulated by cachegrind."
        )
    sentences = " ".join(f"{error.message[0].upper()}{error.message[1:]}." for error in lacking)
    return Check(
        "branches",
        "missing",
        sentences,
        "`uncia branches` does not trace functions here, or simulates no caches.",
        " ".join(f"{error.hint.rstrip('.')}." for error in lacking if error.hint),
    )


def bpf() -> Path | None:
    """Return the program of the monitor ``schedule``, where the engine looks; None without."""
    if variable := os.environ.get("UNCIA_BPF"):
        return Path(variable) if Path(variable).is_file() else None
    # Beside this Python is where `make bpf` puts it.
    places = [Path(sys.executable).with_name(_BPF)]
    with suppress(UnciaError):  # that there is no engine is another check's
        places.insert(0, engine.binary().resolve().with_name(_BPF))
    if installed := shutil.which(_BPF):
        places.append(Path(installed))
    return next((place for place in places if place.is_file()), None)


def _bpf() -> Check:
    """Check whether programs in the kernel can watch its scheduler; tried, and ended at once."""
    program = bpf()
    if program is None:
        return _without_bpf(f"{_BPF} is not built.", "Run make bpf in a checkout of Uncia.")
    try:
        # Without input it ends once it watches.
        process = subprocess.run(
            [program, "schedule"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BPF_TIMEOUT_S,
            check=False,
        )
        answer = json.loads(process.stdout.partition("\n")[0])
        is_watching, message = answer["event"] == "started", str(answer.get("message", ""))
    except (OSError, subprocess.TimeoutExpired, ValueError, LookupError, TypeError) as error:
        return _without_bpf(
            f"{program} does not say whether it works: {error}.", "Build it again: make bpf."
        )
    if not is_watching:
        return _without_bpf(f"{message[:1].upper()}{message[1:]}.", "")
    return Check("bpf", "ok", f"The kernel's scheduler is watched by {program}.")


def _without_bpf(finding: str, remedy: str) -> Check:
    return Check("bpf", "missing", finding, "The monitor schedule does not work here.", remedy)


def _bpftrace() -> Check:
    """Check whether bpftrace is there and its programs run; one that ends at once is tried."""
    program = shutil.which(_BPFTRACE)
    if program is None:
        return _without_bpftrace(
            "bpftrace is not installed.", "Install it: apt-get install bpftrace."
        )
    try:
        process = subprocess.run(
            [program, "-e", "BEGIN { exit(); }"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BPF_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _without_bpftrace(f"{program} does not run: {error}.", "Install it again.")
    if process.returncode != 0:
        lines = [line.strip() for line in process.stderr.splitlines()]
        words = [line for line in lines if line and _BPFTRACE_NOISE not in line]
        reason = " ".join(words) or f"exit code {process.returncode}"
        return _without_bpftrace(f"{program} runs no program: {reason}.", "Run as root.")
    return Check("bpftrace", "ok", f"Programs of bpftrace are run by {program}.")


def resctrl() -> Check:
    """Check whether the kernel counts the last-level cache and the memory's bandwidth; tried."""
    asked = Asked("resctrl")
    try:
        with TemporaryDirectory(prefix="uncia-doctor-") as folder:
            monitors = Monitors.start([asked], Path(folder) / "rows.arrows", time.time_ns())
            sentences = monitors.stop()
    except UnciaError as error:
        reason = error.message
    else:
        if asked.monitor in monitors.watching:
            uncounted = [line for line in sentences if _UNCOUNTED in line]
            finding = " ".join(f"{_without_monitor(line)}." for line in uncounted)
            if any(_BANDWIDTH in line for line in uncounted):
                return Check(
                    "resctrl",
                    "missing",
                    finding,
                    "The monitor resctrl has no rows of the memory's bandwidth here.",
                    "Use a machine whose processor and kernel count it (MBM).",
                )
            cache = "" if _OCCUPANCY in finding else "the last-level cache and "
            counted = f"{cache}the memory's bandwidth {'are' if cache else 'is'} counted."
            return Check("resctrl", "ok", f"{_capital(counted)} {finding}".rstrip())
        reason = sentences[0].rpartition("this machine: ")[2] if sentences else "it does not start"
    return Check(
        "resctrl",
        "missing",
        f"{reason[:1].upper()}{reason[1:]}.",
        "The monitor resctrl does not work here.",
        "Mount resctrl, on a machine whose processor and kernel have it.",
    )


def _without_monitor(sentence: str) -> str:
    """A sentence of a monitor's without that one's name."""
    return _capital(sentence.partition(": ")[2])


def _capital(sentence: str) -> str:
    return f"{sentence[:1].upper()}{sentence[1:]}"


def _without_bpftrace(finding: str, remedy: str) -> Check:
    return Check("bpftrace", "missing", finding, "The monitor bpftrace does not work here.", remedy)
