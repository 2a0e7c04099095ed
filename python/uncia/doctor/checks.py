"""Checks of what this machine can do, with what follows where something is missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from uncia.doctor import perf
from uncia.doctor.host import CgroupMount, Host
from uncia.doctor.probe import Probe
from uncia.doctor.programs import program_checks
from uncia.doctor.report import Check
from uncia.errors import UnciaError
from uncia.perf_events import HARDWARE_CYCLES, SOFTWARE_TASK_CLOCK
from uncia.settings import RUNTIMES, Runtime

# What the embedded platform needs of either version; version 2 freezes without a controller.
_CONTROLLERS_V1: Final = ("cpu", "cpuacct", "memory", "freezer", "pids")
_CONTROLLERS_V2: Final = ("cpu", "memory", "pids")
_COSTS: Final = {
    "cpu": "CPU is not limited in proportion to memory",
    "cpuacct": "CPU time per invocation is not metered",
    "memory": "memory is neither limited nor metered",
    "freezer": "idle instances are not frozen",
    "pids": "a function may fork without end",
}
_NAMESPACES: Final = {"mnt": "mount", "pid": "pid", "ipc": "ipc", "uts": "uts", "net": "network"}
# Of runtimes that are known not to work with every version of their program.
_OLDEST: Final[Mapping[str, tuple[int, ...]]] = {"java": (17,), "node": (16,)}
_REMEDIES: Final[Mapping[str, str]] = {"wasm": "Run make wasm in a checkout of Uncia."}
_OPEN_FILES: Final = 4_096
_TIMEOUT_S: Final = 10
_QUICK_CLOCKS: Final = (
    "tsc",
    "kvm-clock",
    "arch_sys_counter",
    "hyperv_clocksource_tsc_page",
    "xen",
)


def capability_checks(host: Host, probe: Probe, *, is_bpf_tried: bool = True) -> list[Check]:
    """Check everything about this machine that does not change within a run."""
    programs = program_checks(is_bpf_tried=is_bpf_tried)
    checks = [_system(host), _engine(probe), *_runtimes(), *programs]
    if host.linux():
        checks += [_root(host), _user_namespaces(host), _namespaces(host), _cgroups(host)]
        checks += [*_sandbox(probe), *_features(probe), *_containers(probe), *_perf()]
    checks += [_cpus(host), _clock(host), _tick(host)]
    checks += [
        check for check in (_frequency(host), _swap(host), _open_files()) if check is not None
    ]
    return checks


def _system(host: Host) -> Check:
    facts = host.facts()
    name = f"{facts['os']}, kernel {facts['kernel']}, {facts['architecture']}"
    virtualisation = {True: ", virtualised", False: ", on bare metal", None: ""}[
        facts["virtualised"]
    ]
    container = f", in a {facts['container']} container" if facts["container"] else ""
    if host.linux():
        return Check("system", "ok", f"{name}{virtualisation}{container}.")
    return Check(
        "system",
        "missing",
        f"{name}: this is not Linux.",
        "The embedded platform does not run here; bills, reports and cloud platforms do.",
        "Use a Linux machine, or a virtual one, for `uncia serve` and `uncia demo`.",
    )


def _engine(probe: Probe) -> Check:
    if probe.path is None:
        return Check(
            "engine",
            "missing",
            f"The engine is missing: {probe.problem}.",
            "Nothing can be run; bills and reports of what was measured still work.",
            "Install both wheels from a checkout: pip install ./crates/engine .",
        )
    if probe.problem:
        return Check(
            "engine",
            "warn",
            f"The engine does not say what it can do here: {probe.problem}.",
            "The checks of namespaces and cgroups were made without it.",
            "Run `uncia-engine probe` to see what it says.",
        )
    return Check("engine", "ok", f"The engine is {probe.path}.")


def _sandbox(probe: Probe) -> list[Check]:
    """Check what the engine cannot enforce here; empty if it did not answer."""
    warnings = (probe.answer or {}).get("warnings")
    if not isinstance(warnings, list):
        return []
    sentences = [text if text.endswith(".") else f"{text}." for text in map(str, warnings)]
    if not sentences:
        return [Check("sandbox", "ok", "The embedded platform can enforce all limits here.")]
    return [
        Check(
            "sandbox",
            "warn",
            " ".join(sentence[0].upper() + sentence[1:] for sentence in sentences),
            "Measurements on the embedded platform hold with these restrictions.",
            "Run as root, on a machine with cgroups that can be written.",
        )
    ]


def _features(probe: Probe) -> list[Check]:
    """Check the optional features of the embedded platform; empty if it did not answer."""
    features = (probe.answer or {}).get("features")
    if not isinstance(features, dict):
        return []
    compiled = " and ".join(features.get("byte_code", [])) or "no runtime"
    starts = " or ".join(features.get("start_from", []))
    others = features.get("not_started_from", {})
    missing = "".join(f" Not from {kind}: {reason}" for kind, reason in others.items())
    warm = (
        " An instance restored from a warm checkpoint (share_state: warm) has in memory what the "
        "invocations before it have left there."
        if features.get("warm_checkpoints")
        else ""
    )
    filtered = "are" if features.get("system_call_filter") else "are not"
    not_awake = features.get("not_awake")
    awake = f"cannot be kept awake: {not_awake}" if not_awake else "can be kept awake (stay_awake)"
    finding = (
        f"Rows go through a journal of format {features.get('journal_format')}; packages for "
        f"{compiled} are compiled when they are stored; instances start from {starts}; "
        f"system calls of functions {filtered} filtered; idle CPUs {awake}.{missing}{warm}"
    )
    off = [f"starts from {kind}" for kind in others]
    if not features.get("system_call_filter"):
        off.append("the filter of system calls")
    if not_awake:
        off.append("keeping idle CPUs awake")
    if not off:
        return [Check("features", "ok", finding)]
    return [
        Check(
            "features",
            "warn",
            finding,
            f"The embedded platform serves without: {', '.join(off)}.",
            "See docs/reference/doctor.md; nothing is to be done where nothing of it is asked for.",
        )
    ]


def platform_checks(address: str, health: Mapping[str, object]) -> list[Check]:
    """Check what the platform that runs at ``address`` says of itself."""
    warnings = health.get("warnings")
    sentences = [str(it).rstrip(".") + "." for it in warnings] if isinstance(warnings, list) else []
    # One of an earlier version does not say.
    words = {True: " Precedence is on.", False: " Precedence is off."}
    precedence = words.get(health.get("precedence"), "")  # type: ignore[call-overload]
    if not sentences:
        finding = f"The platform at {address} warns of nothing.{precedence}"
        return [Check("platform", "ok", finding)]
    return [
        Check(
            "platform",
            "warn",
            f"The platform at {address}: {' '.join(sentences)}{precedence}",
            "It serves with these restrictions.",
            "Do what the sentences say.",
        )
    ]


def missing_platform(error: UnciaError) -> Check:
    """Say why there is nothing to be said of a platform that was asked for."""
    finding = error.message.rstrip(".")
    return Check(
        "platform",
        "missing",
        f"{finding[:1].upper()}{finding[1:]}.",
        "What the platform warns of is not known.",
        error.hint or "Name another with --endpoint.",
    )


def _containers(probe: Probe) -> list[Check]:
    """List the OCI runtimes, of which none is needed; empty if the engine did not answer."""
    runtimes = (probe.answer or {}).get("features", {}).get("oci_runtimes")
    if not isinstance(runtimes, dict):
        return []
    installed = [f"{name} {version}" for name, version in runtimes.items() if version]
    absent = [name for name, version in runtimes.items() if not version]
    finding = (
        f"Instances can be in containers of {' and '.join(installed)} (sandbox)."
        if installed
        else "Instances cannot be in containers (sandbox)."
    )
    if absent:
        finding += f" Not installed: {', '.join(absent)}."
    return [Check("oci-runtimes", "ok", finding)]


def _runtimes() -> list[Check]:
    """Check the interpreters of the engine's runtimes, Python first."""
    # Functions in Python run with the interpreter that requirements are installed for: this one,
    # outside of its virtual environment.
    base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    python = Check("runtime-python", "ok", f"Python {platform.python_version()} at {base}.")
    others = [
        runtime for runtime in RUNTIMES.values() if runtime.requirement and runtime.name != "python"
    ]
    return [python, *map(_runtime, others), _go()]


def _java() -> Check:
    """Check the Java that functions in Java run with, which has to have a compiler."""
    from uncia.functions import java

    try:
        path, version = java.find()
    except UnciaError as error:
        return Check(
            "runtime-java",
            "missing",
            f"{error.message[0].upper()}{error.message[1:]}.",
            "Functions in Java neither run nor can be packaged here.",
            error.hint or "",
        )
    return Check("runtime-java", "ok", f"Java {version} at {path}.")


def _go() -> Check:
    """Check the Go that functions in Go are built with; those that are built need none."""
    from uncia.functions import golang

    try:
        path, version = golang.find()
    except UnciaError as error:
        return Check(
            "runtime-go",
            "missing",
            f"{error.message[0].upper()}{error.message[1:]}.",
            "Functions in Go cannot be packaged here; those that are packaged run.",
            f"{error.hint}.",
        )
    return Check("runtime-go", "ok", f"Go {'.'.join(map(str, version))} at {path}.")


def _runtime(runtime: Runtime) -> Check:
    """Check the program of a runtime, which the engine finds in the PATH or beside itself."""
    # "Node.js (node)": its title and its program.
    title, _, program = (runtime.requirement or "").rstrip(")").rpartition(" (")
    # Beside this Python is where `make wasm` puts what it builds.
    folder = str(Path(sys.executable).parent)
    path = shutil.which(program) or shutil.which(program, path=folder)
    version = _version(path) if path else None
    oldest = _OLDEST.get(runtime.name, (0,))
    if runtime.name == "java" and version is not None and version >= oldest:
        return _java()
    if version is not None and version >= oldest:
        number = ".".join(map(str, version))
        return Check(f"runtime-{runtime.name}", "ok", f"{title} {number} at {path}.")
    if path is None:
        finding = f"{title} is not installed."
    elif version is None:
        finding = f"{path} does not print its version."
    else:
        finding = f"{title} at {path} is {'.'.join(map(str, version))}, which is too old."
    newer = f" {oldest[0]} or newer" if oldest[0] else ""
    return Check(
        f"runtime-{runtime.name}",
        "missing",
        finding,
        f"Functions with the runtime {runtime.name} do not run here.",
        _REMEDIES.get(runtime.name, f"Install {title}{newer}."),
    )


def _version(path: str) -> tuple[int, ...] | None:
    try:
        process = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", process.stdout + process.stderr)
    return tuple(map(int, match.groups())) if match else None


def _root(host: Host) -> Check:
    if host.root_user():
        return Check("root", "ok", "Running as root.")
    return Check(
        "root",
        "warn",
        "Not running as root.",
        "The embedded platform runs with what user namespaces allow; CPU and memory limits hold "
        "only where cgroups are delegated to this user.",
        "Run as root, or delegate a cgroup: systemd-run --user --scope -p Delegate=yes uncia ...",
    )


def _user_namespaces(host: Host) -> Check:
    limit = host.integer("/proc/sys/user/max_user_namespaces")
    reasons = []
    if not host.exists("/proc/self/ns/user"):
        reasons.append("the kernel has none")
    elif limit == 0:
        reasons.append("user.max_user_namespaces is 0")
    if not host.root_user():
        if host.integer("/proc/sys/kernel/unprivileged_userns_clone") == 0:
            reasons.append("kernel.unprivileged_userns_clone is 0")
        if host.integer("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1:
            reasons.append("AppArmor restricts them")
    if not reasons:
        return Check("user-namespaces", "ok", "User namespaces can be made.")
    needed = not host.root_user()
    return Check(
        "user-namespaces",
        "missing" if needed else "ok",
        f"User namespaces cannot be made: {' and '.join(reasons)}.",
        "Without root, instances cannot be isolated at all." if needed else "",
        "Allow them with sysctl, or run as root." if needed else "",
    )


def _namespaces(host: Host) -> Check:
    kinds = [name for file, name in _NAMESPACES.items() if host.exists(f"/proc/self/ns/{file}")]
    absent = [name for name in _NAMESPACES.values() if name not in kinds]
    if absent:
        return Check(
            "namespaces",
            "missing",
            f"The kernel lacks namespaces: {', '.join(absent)}.",
            "Instances see that much of the host and of each other.",
            "Boot a kernel that has them.",
        )
    if host.capable_of_everything():
        return Check("namespaces", "ok", f"Namespaces can be made: {', '.join(kinds)}.")
    return Check(
        "namespaces",
        "warn",
        "Namespaces can be made only inside a user namespace (no CAP_SYS_ADMIN).",
        "Instances are isolated as far as user namespaces allow.",
        "Run as root.",
    )


def _cgroups(host: Host) -> Check:
    mounts = host.cgroup_mounts()
    version = host.cgroup_version()
    if version is None:
        return Check(
            "cgroup",
            "missing",
            "No cgroup hierarchy with a cpu controller is mounted.",
            "Instances are neither limited nor metered: " + "; ".join(_COSTS.values()) + ".",
            "Mount cgroups, or run outside the container that hides them.",
        )
    needed = _CONTROLLERS_V2 if version == 2 else _CONTROLLERS_V1
    usable: list[str] = []
    missing: list[str] = []
    for controller in needed:
        is_usable = any(
            _can_make_group(host, mount, controller)
            for mount in mounts
            if mount.version == version and controller in mount.controllers
        )
        (usable if is_usable else missing).append(controller)
    if not missing:
        return Check("cgroup", "ok", f"cgroup version {version}, writable: {', '.join(usable)}.")
    return Check(
        "cgroup",
        "warn" if usable else "missing",
        f"cgroup version {version}; not usable: {', '.join(missing)}.",
        "On the embedded platform " + "; ".join(_COSTS[name] for name in missing) + ".",
        "Run as root, or delegate a cgroup: systemd-run --user --scope -p Delegate=yes uncia ...",
    )


def _can_make_group(host: Host, mount: CgroupMount, controller: str) -> bool:
    """Return whether a group can be created at the hierarchy's top or in this process's group."""
    if not mount.writable:
        return False
    group = host.process_cgroups().get("" if mount.version == 2 else controller, "/")
    parents = (mount.path, mount.path / group.lstrip("/"))
    return any(_try_group(parent) for parent in dict.fromkeys(parents))


def _try_group(parent: Path) -> bool:
    """Create a group and remove it; returns whether that succeeded."""
    group = parent / f"uncia-doctor-{os.getpid()}"
    try:
        group.mkdir()
        group.rmdir()
    except OSError:
        return False
    return True


def _perf() -> Sequence[Check]:
    software = perf.count(SOFTWARE_TASK_CLOCK)
    hardware = perf.count(HARDWARE_CYCLES)
    remedy = "Set kernel.perf_event_paranoid to 1 or less, or run as root."
    return (
        Check("perf-software", "ok", "Software performance events are counted.")
        if software.count is not None
        else Check(
            "perf-software",
            "missing",
            f"Software performance events are not available: {software.reason}.",
            "No context switches, migrations and page faults in profiles.",
            remedy,
        ),
        Check("perf-hardware", "ok", "Hardware performance events are counted.")
        if hardware.count is not None
        else Check(
            "perf-hardware",
            "missing",
            f"Hardware performance events are not available: {hardware.reason}.",
            "No instructions per cycle and no cache misses in profiles; latencies and bills are "
            "not concerned.",
            "Use a machine whose hypervisor passes the counters on, or bare metal.",
        ),
    )


def _cpus(host: Host) -> Check:
    usable, quota = host.usable_cpus(), host.cpu_quota()
    model = f", {host.cpu_model()}" if host.cpu_model() else ""
    finding = f"{usable} CPUs usable of {host.cpus()}{model}"
    if quota is not None:
        return Check(
            "cpus",
            "warn",
            f"{finding}; this process's cgroup allows it {quota:g} CPUs' worth of time.",
            "When that is used up, the load generator and the functions stand still together.",
            "Run outside that limit.",
        )
    if usable is not None and usable < 2:
        return Check(
            "cpus",
            "warn",
            f"{finding}.",
            "The load generator and the functions compete for one CPU.",
            "Use a machine with at least two.",
        )
    return Check("cpus", "ok", f"{finding}.")


def _clock(host: Host) -> Check:
    source = host.clocksource()
    if source is None:
        return Check("clock", "ok", "The clock source is not known.")
    if source in _QUICK_CLOCKS:
        return Check("clock", "ok", f"The clock source is {source}.")
    return Check(
        "clock",
        "warn",
        f"The clock source is {source}, which takes about a microsecond to read.",
        "Reading times costs CPU at high request rates.",
        "Boot with clocksource=tsc if the processor's is reliable.",
    )


def _tick(host: Host) -> Check:
    hz, scheduler_slice_ns = host.hz(), host.scheduler_slice_ns()
    quota_slice_us = host.integer("/proc/sys/kernel/sched_cfs_bandwidth_slice_us")
    parts = [
        f"the kernel ticks at {hz} Hz" if hz else "the kernel's tick rate is not known",
        f"the scheduler's base slice is {scheduler_slice_ns / 1e6:g} ms"
        if scheduler_slice_ns
        else "the scheduler's base slice is not readable",
        f"CPU quota is handed out in slices of {quota_slice_us / 1000:g} ms"
        if quota_slice_us
        else "the slice of CPU quota is not readable",
    ]
    text = "; ".join(parts)
    return Check("tick", "ok", f"{text[0].upper()}{text[1:]}.")


def _frequency(host: Host) -> Check | None:
    governor = host.read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor is None:
        return None
    if governor == "performance":
        return Check("frequency", "ok", "The CPU frequency governor is performance.")
    return Check(
        "frequency",
        "warn",
        f"The CPU frequency governor is {governor}.",
        "Short functions run at a lower frequency than long ones.",
        "cpupower frequency-set -g performance",
    )


def _swap(host: Host) -> Check | None:
    total, free = host.memory("SwapTotal"), host.memory("SwapFree")
    if not total or free is None:
        return None
    used = total - free
    if used == 0:
        return Check("swap", "ok", f"Swap of {total >> 20} MB, none in use.")
    return Check(
        "swap",
        "warn",
        f"{used >> 20} MB of swap are in use.",
        "Memory figures are too low where pages were swapped out, and latencies too long.",
        "swapoff -a for the time of the run.",
    )


def _open_files() -> Check | None:
    if platform.system() == "Windows":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    if soft == resource.RLIM_INFINITY or soft >= _OPEN_FILES:
        return Check("open-files", "ok", f"A process may open {limit} files.")
    return Check(
        "open-files",
        "warn",
        f"A process may open {limit} files only.",
        "A burst of more connections than that fails at the client.",
        f"ulimit -n {min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536}",
    )
