"""A Docker Engine for tests: dockerd by hand, in namespaces of its own, and a small root."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patience import scaled

from uncia.interrupt import end_with_parent
from uncia.layouts import Execution, Layer, LayerWriter, write_image
from uncia.platforms.shims.docker_engine import Engine, EngineError

CLONE_NEWNET = 0x40000000
MODULES = "base64, importlib, json, mmap, os, resource, socket, sys, time, typing, pathlib, uuid"
START = """
set -e
mount --make-rprivate /
mount -t sysfs sysfs /sys
if grep -q '^0::' /proc/1/cgroup && [ "$(wc -l < /proc/1/cgroup)" = 1 ]; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
    mount -t tmpfs tmpfs /sys/fs/cgroup
    # Of version 1 alone: version 2 would lose the others, and performance events are counted there.
    for each in $(awk '!/^#/ && $2 != 0 && $4 == 1 {print $1}' /proc/cgroups); do
        mkdir /sys/fs/cgroup/$each
        mount -t cgroup -o $each cgroup /sys/fs/cgroup/$each || rmdir /sys/fs/cgroup/$each
    done
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
fi
ip link set lo up
exec dockerd --data-root "$1/data" --exec-root "$1/exec" --pidfile "$1/pid" \
    --host "unix://$1/docker.sock" --bip 10.213.7.1/24
"""


@dataclass
class Daemon:
    """A dockerd that runs.

    Attributes:
        socket: its path.
        pid: of what is in its network, which this process is not.
    """

    socket: str
    process: "subprocess.Popen[bytes]"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def engine(self) -> Engine:
        return Engine(self.socket)

    def names(self) -> set[str]:
        """The names of all containers and images."""
        containers = self.engine.ask("GET", "/containers/json", query={"all": "true"})
        images = self.engine.ask("GET", "/images/json", query={"all": "true"})
        names = [name for it in containers for name in it["Names"]]
        return {*names, *(tag for it in images for tag in it["RepoTags"] or [it["Id"]])}


def lacking() -> str:
    """Why no Engine can be run here; empty if one can be tried."""
    if os.geteuid() != 0:
        return "dockerd by hand needs root"
    absent = [name for name in ("dockerd", "containerd", "runc", "ip") if not shutil.which(name)]
    return f"{absent[0]} is not installed (apt-get install docker.io)" if absent else ""


@contextmanager
def daemon(folder: Path) -> Iterator[Daemon]:
    """A dockerd in namespaces of its own, and nothing left of it.

    Raises:
        EngineError: it does not start; the message ends with its log.
    """
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["unshare", "--net", "--mount", "bash", "-c", START, "bash", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # Nor may it stay when the tests are killed.
            preexec_fn=end_with_parent(os.getpid(), signal.SIGTERM),
        )
    running = Daemon(str(folder / "docker.sock"), process)
    try:
        deadline = time.monotonic() + scaled(20)
        while True:
            try:
                running.engine.version()
                break
            except EngineError as error:
                if process.poll() is not None or time.monotonic() > deadline:
                    last = log.read_text(errors="replace")[-500:]
                    raise EngineError(f"dockerd does not start: {last}") from error
            time.sleep(0.05)
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(scaled(20))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def small_root(folder: Path, program: str) -> Path:
    """A layout with an interpreter and what it is linked to; of Python with what a shim imports."""
    archive = folder / "archive"
    is_python = program == "python3"
    found = sys._base_executable if is_python else shutil.which(program)  # type: ignore[attr-defined]
    path = os.path.realpath(str(found))
    files = {f"usr/bin/{program}": path}
    if is_python:
        files |= _library(path)
    linked = _linked(*(it for it in files.values() if ".so" in it or it == path))
    files |= {name.removeprefix("/"): name for name in linked}
    with archive.open("wb") as file, LayerWriter(file) as writer:
        for name in sorted(files):
            writer.add_file(name, Path(files[name]), 0o755)
    execution = Execution((f"/usr/bin/{program}",), (), {"PATH": "/usr/bin"})
    return write_image(folder / "root", [Layer(archive)], execution).folder


def _library(interpreter: str) -> dict[str, str]:
    """The modules that functions and shims import, by where this interpreter looks for them."""
    script = f"import {MODULES}, sys; print(sys.prefix); print(*("
    script += "m.__file__ for m in sys.modules.values()"
    script += " if getattr(m, '__file__', None)), sep='\\n')"
    command = [interpreter, "-I", "-S", "-c", script]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    prefix, *paths = shown.split()
    encodings = Path(next(it for it in paths if "/encodings/" in it)).parent
    paths += [str(it) for it in encodings.glob("*.py")]
    return {f"usr/{Path(path).relative_to(prefix)}": path for path in paths}


def _linked(*paths: str) -> set[str]:
    """The libraries that programs and libraries are linked to, and their loader."""
    shown = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"(/\S+) \(0x", shown))


@contextmanager
def within(pid: int) -> Iterator[None]:
    """This thread, and what it starts, in the network of a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as own, Path(f"/proc/{pid}/ns/net").open() as its:
        assert libc.setns(its.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        try:
            yield
        finally:
            assert libc.setns(own.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
