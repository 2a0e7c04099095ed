"""The machine under a benchmark: how quiet it is, and what a process on it uses."""

from __future__ import annotations

import os
import platform
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUIET_IDLE = 0.9
"""Less idle CPU than this, with nothing of the benchmark's own running, is called busy."""
_POLL_S = 0.1
_KIB = 1024


@dataclass(frozen=True)
class CpuTimes:
    """Ticks of all CPUs since boot."""

    total: int
    idle: int
    steal: int

    @classmethod
    def now(cls) -> CpuTimes:
        line = Path("/proc/stat").read_text().splitlines()[0]
        # user nice system idle iowait irq softirq steal; guests are within user and nice.
        fields = [int(field) for field in line.split()[1:9]]
        return cls(sum(fields), fields[3] + fields[4], fields[7])

    def since(self, before: CpuTimes) -> tuple[float, float]:
        """The shares of idle and of stolen time since ``before``."""
        total = max(1, self.total - before.total)
        return (self.idle - before.idle) / total, (self.steal - before.steal) / total


@dataclass(frozen=True)
class Quiet:
    """Idle and stolen CPU shares of the machine while nothing of the benchmark's own ran."""

    idle: float
    steal: float

    @property
    def is_quiet(self) -> bool:
        return self.idle >= QUIET_IDLE and self.steal < 1 - QUIET_IDLE

    @classmethod
    def watch(cls, seconds: float = 1.0) -> Quiet:
        before = CpuTimes.now()
        time.sleep(seconds)
        return cls(*CpuTimes.now().since(before))


@dataclass(frozen=True)
class Run:
    """A process that has ended.

    Attributes:
        code: exit code; negative for a signal.
        stdout, stderr: what it wrote.
        cpu_s: user and system time of it and of its children, from wait4.
        elapsed_s: from start to end.
        peak_bytes: the most memory that it held (VmHWM, looked at every 0.1 s: the kernel keeps the
            maximum, so only growth in the last tenth of a second goes unseen). The maximum of wait4
            is no use, because it includes this process as it was before exec.
        idle: share of idle CPU on the whole machine meanwhile.
        steal: share of stolen CPU meanwhile.
    """

    code: int
    stdout: str
    stderr: str
    cpu_s: float
    elapsed_s: float
    peak_bytes: int
    idle: float
    steal: float


def run(
    command: Sequence[str | Path],
    folder: Path,
    timeout_s: float,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
) -> Run:
    """Runs a command to its end, or kills it at the timeout; its output goes to files meanwhile."""
    outputs = folder / "stdout.txt", folder / "stderr.txt"
    (folder / "stdin.txt").write_text(stdin)
    cpus, started = CpuTimes.now(), time.monotonic()
    with (
        (folder / "stdin.txt").open() as given,
        outputs[0].open("w") as out,
        outputs[1].open("w") as err,
    ):
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=given,
            stdout=out,
            stderr=err,
            cwd=folder,
            env={**os.environ, **(env or {})},
        )
    peak = _wait(process, started + timeout_s)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    idle, steal = CpuTimes.now().since(cpus)
    stdout, stderr = (path.read_text(errors="replace") for path in outputs)
    cpu = usage.ru_utime + usage.ru_stime
    return Run(process.returncode, stdout, stderr, cpu, elapsed, peak, idle, steal)


def _wait(process: subprocess.Popen[bytes], deadline: float) -> int:
    """Waits until the process is a zombie and returns the peak of its memory, in bytes."""
    peak = 0
    ended = os.pidfd_open(process.pid)
    try:
        while not select.select([ended], [], [], _POLL_S)[0]:
            peak = max(peak, _peak_bytes(process.pid))
            if time.monotonic() > deadline:
                process.kill()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        os.close(ended)
    return peak


def _peak_bytes(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * _KIB
    return 0


def describe() -> dict[str, Any]:
    """CPU, kernel and the like, for the record."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": model,
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }
