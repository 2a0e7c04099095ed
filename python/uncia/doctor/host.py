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


class Host:
    """A machine as its files show it; ``root`` stands for ``/``, so that tests bring their own."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    @property
    def real(self) -> bool:
        """Whether this is the machine we run on, which can be asked more than its files say."""
        return self.root == Path("/")

    def read(self, path: str) -> str | None:
        """A file's text, stripped; None if it cannot be read."""
        try:
            return (
                (self.root / path.lstrip("/")).read_text(encoding="utf-8", errors="replace").strip()
            )
        except OSError:
            return None

    def integer(self, path: str) -> int | None:
        """A file's only number; None if there is none."""
        text = self.read(path)
        return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return (self.root / path.lstrip("/")).exists()

    def linux(self) -> bool:
        """Whether it runs Linux."""
        return platform.system() == "Linux" if self.real else self.exists("/proc")

    def cpu_model(self) -> str | None:
        """The processor's name."""
        text = self.read("/proc/cpuinfo") or ""
        match = re.search(
            r"^(?:model name|Model|cpu model|Processor)\s*:\s*(.+)$", text, re.MULTILINE
        )
        return match.group(1).strip() if match else (platform.processor() or None)

    def cpus(self) -> int | None:
        """How many CPUs are online."""
        text = self.read("/proc/stat")
        found = len(re.findall(r"^cpu\d+ ", text, re.MULTILINE)) if text else 0
        return found or os.cpu_count()

    def usable_cpus(self) -> int | None:
        """How many CPUs this process may run on."""
        if self.real and hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return self.cpus()

    def memory(self, field: str) -> int | None:
        """A field of ``/proc/meminfo`` in bytes."""
        match = re.search(rf"^{field}:\s+(\d+) kB$", self.read("/proc/meminfo") or "", re.MULTILINE)
        return int(match.group(1)) * 1024 if match else None

    def hz(self) -> int | None:
        """The kernel's timer frequency in Hz."""
        if self.real and self.linux():
            try:
                tick = time.clock_getres(_CLOCK_MONOTONIC_COARSE)
            except OSError:
                return None
            return round(1 / tick) if tick > 0 else None
        return None

    def virtualised(self) -> bool | None:
        """Whether a hypervisor is below; None where the processor does not tell."""
        if self.exists("/sys/hypervisor/type"):
            return True
        flags = re.search(r"^flags\s*:(.*)$", self.read("/proc/cpuinfo") or "", re.MULTILINE)
        return "hypervisor" in flags.group(1).split() if flags else None

    def container(self) -> str | None:
        """What kind of container this is in; None if it seems to be in none."""
        if self.exists("/.dockerenv"):
            return "docker"
        if self.exists("/run/.containerenv"):
            return "podman"
        return self.read("/run/systemd/container")

    def scheduler_slice_ns(self) -> int | None:
        """The scheduler's base time slice in ns; readable by root where debugfs is mounted."""
        for name in ("base_slice_ns", "min_granularity_ns"):
            value = self.integer(f"/sys/kernel/debug/sched/{name}")
            if value is not None:
                return value
        return self.integer("/proc/sys/kernel/sched_min_granularity_ns")

    def capable_of_everything(self) -> bool:
        """Whether this process has CAP_SYS_ADMIN."""
        status = self.read("/proc/self/status") or ""
        match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
        return bool(match and int(match.group(1), 16) >> _CAP_SYS_ADMIN & 1)

    def cgroup_mounts(self) -> list[CgroupMount]:
        """The cgroup hierarchies that are mounted."""
        mounts = []
        for line in (self.read("/proc/self/mountinfo") or "").splitlines():
            before, _, after = line.partition(" - ")
            fields = before.split()
            kind, _, options = (*after.split(maxsplit=2), "", "", "")[:3]
            if kind not in ("cgroup", "cgroup2") or len(fields) < 6:
                continue
            at = fields[4]
            if kind == "cgroup2":
                controllers = frozenset((self.read(f"{at}/cgroup.controllers") or "").split())
            else:
                controllers = frozenset(options.split(",")) - {"rw", "ro", "xattr"}
            writable = "ro" not in fields[5].split(",") and "ro" not in options.split(",")
            version = 2 if kind == "cgroup2" else 1
            mounts.append(CgroupMount(version, controllers, self.root / at.lstrip("/"), writable))
        return mounts

    def own_cgroups(self) -> dict[str, str]:
        """This process's cgroup per controller of version 1, and under ``""`` that of version 2."""
        found = {}
        for line in (self.read("/proc/self/cgroup") or "").splitlines():
            _, controllers, path = (*line.split(":", 2), "", "")[:3]
            for controller in controllers.split(","):
                found[controller] = path
        return found

    def cgroup_version(self) -> int | None:
        """The version whose hierarchy has the cpu controller; None if neither has it."""
        versions = {m.version for m in self.cgroup_mounts() if "cpu" in m.controllers}
        return max(versions) if versions else None

    def cpu_quota(self) -> float | None:
        """How many CPUs' worth of time this process's own cgroup allows it; None if unlimited."""
        own = self.own_cgroups()
        for mount in self.cgroup_mounts():
            if "cpu" not in mount.controllers and mount.version == 1:
                continue
            at = mount.path / own.get("" if mount.version == 2 else "cpu", "/").lstrip("/")
            try:
                if mount.version == 2:
                    quota, period = (at / "cpu.max").read_text().split()
                else:
                    quota = (at / "cpu.cfs_quota_us").read_text().strip()
                    period = (at / "cpu.cfs_period_us").read_text().strip()
            except (OSError, ValueError):
                continue
            if quota not in ("max", "-1") and int(period) > 0:
                return int(quota) / int(period)
        return None

    def facts(self) -> dict[str, Any]:
        """The machine in figures: plain data, None for what is not known."""
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
        """Whether two CPUs share a core."""
        active = self.integer("/sys/devices/system/cpu/smt/active")
        return None if active is None else active == 1

    def clocksource(self) -> str | None:
        """Where the kernel takes the time from."""
        return self.read("/sys/devices/system/clocksource/clocksource0/current_clocksource")

    def root_user(self) -> bool | None:
        """Whether this process runs as root; None where there is no such thing."""
        return os.geteuid() == 0 if hasattr(os, "geteuid") else None

    def _os(self) -> str:
        text = self.read("/etc/os-release") or ""
        match = re.search(r'^PRETTY_NAME="?([^"\n]*)"?$', text, re.MULTILINE)
        return match.group(1) if match else platform.system()
