"""What the kernel says about this machine, read from ``/proc`` and ``/sys``."""

from __future__ import annotations

import os
import platform
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

# CLOCK_MONOTONIC_COARSE advances once per timer tick, so that its resolution is 1/HZ.
_CLOCK_MONOTONIC_COARSE: Final = 6
_CAP_SYS_ADMIN: Final = 21


@dataclass(frozen=True)
class CgroupMount:
    """A mounted cgroup hierarchy.

    Attributes:
        version: 1 or 2.
        controllers: those of the hierarchy; for version 2, those its root offers.
        path: where it is mounted.
        writable: it is not mounted read-only.
    """

    version: int
    controllers: frozenset[str]
    path: Path
    writable: bool


def quota_of(group: Path, version: int) -> tuple[int, int] | None:
    """Read a control group's CPU quota and period in us; None if it has no quota.

    Args:
        group: its folder.
        version: of control groups, 1 or 2.
    """
    names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        quota, period = [text for name in names for text in (group / name).read_text().split()]
    except (OSError, ValueError):
        return None
    if quota in ("max", "-1") or int(period) <= 0:
        return None
    return int(quota), int(period)


class Host:
    """A machine as its files describe it; tests replace ``root``, which stands for ``/``."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    @property
    def real(self) -> bool:
        """Whether this is the machine that this process runs on, which system calls can query."""
        return self.root == Path("/")

    def read(self, path: str) -> str | None:
        """Return a file's text, stripped; None if it cannot be read."""
        try:
            return (
                (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
            )
        except OSError:
            return None

    def integer(self, path: str) -> int | None:
        """Return the number that a file consists of; None if it is no number."""
        text = self.read(path)
        return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None

    def exists(self, path: str) -> bool:
        """Return whether there is such a file or folder."""
        return (self.root / path.lstrip("/")).exists()

    def linux(self) -> bool:
        """Return whether it runs Linux."""
        return platform.system() == "Linux" if self.real else self.exists("/proc")

    def cpu_model(self) -> str | None:
        """Return the processor's name."""
        text = self.read("/proc/cpuinfo") or ""
        match = re.search(
            r"^(?:model name|Model|cpu model|Processor)\s*:\s*(.+)$", text, re.MULTILINE
        )
        return match.group(1).strip() if match else (platform.processor() or None)

    def cpus(self) -> int | None:
        """Return the number of CPUs that are online."""
        text = self.read("/proc/stat")
        count = len(re.findall(r"^cpu\d+ ", text, re.MULTILINE)) if text else 0
        return count or os.cpu_count()

    def usable_cpus(self) -> int | None:
        """Return the number of CPUs that this process may run on."""
        if self.real and hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return self.cpus()

    def memory(self, field: str) -> int | None:
        """Return a field of ``/proc/meminfo`` in bytes."""
        match = re.search(rf"^{field}:\s+(\d+) kB$", self.read("/proc/meminfo") or "", re.MULTILINE)
        return int(match.group(1)) * 1024 if match else None

    def hz(self) -> int | None:
        """Return the kernel's timer frequency in Hz."""
        if self.real and self.linux():
            try:
                tick = time.clock_getres(_CLOCK_MONOTONIC_COARSE)
            except OSError:
                return None
            return round(1 / tick) if tick > 0 else None
        return None

    def virtualised(self) -> bool | None:
        """Return whether this is a virtual machine; None where the processor does not show it."""
        if self.exists("/sys/hypervisor/type"):
            return True
        flags = re.search(r"^flags\s*:(.*)$", self.read("/proc/cpuinfo") or "", re.MULTILINE)
        return "hypervisor" in flags.group(1).split() if flags else None

    def container(self) -> str | None:
        """Return the kind of container that this is in; None if it seems to be in none."""
        if self.exists("/.dockerenv"):
            return "docker"
        if self.exists("/run/.containerenv"):
            return "podman"
        return self.read("/run/systemd/container")

    def scheduler_slice_ns(self) -> int | None:
        """Return the scheduler's base slice in ns; root can read it where debugfs is mounted."""
        for name in ("base_slice_ns", "min_granularity_ns"):
            value = self.integer(f"/sys/kernel/debug/sched/{name}")
            if value is not None:
                return value
        return self.integer("/proc/sys/kernel/sched_min_granularity_ns")

    def capable_of_everything(self) -> bool:
        """Return whether this process has CAP_SYS_ADMIN."""
        status = self.read("/proc/self/status") or ""
        match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
        return bool(match and int(match.group(1), 16) >> _CAP_SYS_ADMIN & 1)

    def cgroup_mounts(self) -> list[CgroupMount]:
        """Return the cgroup hierarchies that are mounted."""
        mounts = []
        for line in (self.read("/proc/self/mountinfo") or "").splitlines():
            before, _, after = line.partition(" - ")
            fields = before.split()
            kind, _, options = (*after.split(maxsplit=2), "", "", "")[:3]
            if kind not in ("cgroup", "cgroup2") or len(fields) < 6:
                continue
            path = fields[4]
            if kind == "cgroup2":
                controllers = frozenset((self.read(f"{path}/cgroup.controllers") or "").split())
            else:
                controllers = frozenset(options.split(",")) - {"rw", "ro", "xattr"}
            writable = "ro" not in fields[5].split(",") and "ro" not in options.split(",")
            version = 2 if kind == "cgroup2" else 1
            mounts.append(CgroupMount(version, controllers, self.root / path.lstrip("/"), writable))
        return mounts

    def process_cgroups(self) -> dict[str, str]:
        """Return this process's cgroup by controller of version 1, and by ``""`` of version 2."""
        groups = {}
        for line in (self.read("/proc/self/cgroup") or "").splitlines():
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            for controller in controllers.split(","):
                groups[controller] = path
        return groups

    def cgroup_version(self) -> int | None:
        """Return the cgroup version that has the cpu controller; None if neither has it."""
        versions = {m.version for m in self.cgroup_mounts() if "cpu" in m.controllers}
        return max(versions) if versions else None

    def cpu_quota(self) -> float | None:
        """Return how many CPUs of time this process's own cgroup allows; None if unlimited."""
        groups = self.process_cgroups()
        for mount in self.cgroup_mounts():
            if "cpu" not in mount.controllers and mount.version == 1:
                continue
            group = mount.path / groups.get("" if mount.version == 2 else "cpu", "/").lstrip("/")
            limit = quota_of(group, mount.version)
            if limit is not None:
                quota, period = limit
                return quota / period
        return None

    def facts(self) -> dict[str, Any]:
        """Return the machine's properties as plain data; None for what is not known."""
        return {
            "os": self._os(),
            "kernel": platform.release() if self.real else self.read("/proc/sys/kernel/osrelease"),
            "architecture": platform.machine(),
            "cpu_model": self.cpu_model(),
            "cpus": self.cpus(),
            "cpus_usable": self.usable_cpus(),
            "cpu_quota": self.cpu_quota(),
            "smt": self.smt(),
            "memory_bytes": self.memory("MemTotal"),
            "swap_bytes": self.memory("SwapTotal"),
            "hz": self.hz(),
            "clocksource": self.clocksource(),
            "scheduler_slice_ns": self.scheduler_slice_ns(),
            "bandwidth_slice_us": self.integer("/proc/sys/kernel/sched_cfs_bandwidth_slice_us"),
            "virtualised": self.virtualised(),
            "container": self.container(),
            "cgroup_version": self.cgroup_version(),
            "root": self.root_user(),
            "python": platform.python_version(),
        }

    def smt(self) -> bool | None:
        """Return whether CPUs share a core; None if not known."""
        active = self.integer("/sys/devices/system/cpu/smt/active")
        return None if active is None else active == 1

    def clocksource(self) -> str | None:
        """Return the kernel's clock source."""
        return self.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")

    def root_user(self) -> bool | None:
        """Return whether this process runs as root; None on systems without root."""
        return os.geteuid() == 0 if hasattr(os, "geteuid") else None

    def _os(self) -> str:
        text = self.read("/etc/os-release") or ""
        match = re.search(r'^PRETTY_NAME="?([^"\n]*)"?$', text, re.MULTILINE)
        return match.group(1) if match else platform.system()
