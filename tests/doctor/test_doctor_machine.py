"""What is read of a machine, and what is concluded from it."""

import json
import os
import platform
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import control_groups
import pytest

from uncia import doctor
from uncia.doctor import examine, perf, programs
from uncia.doctor.checks import capability_checks
from uncia.doctor.host import Host
from uncia.doctor.probe import Probe, engine_probe
from uncia.doctor.report import Check, Report
from uncia.experiment import noise
from uncia.perf_events import HARDWARE_CYCLES, SOFTWARE_TASK_CLOCK
from uncia.runs.folder import RunFolder

MakeHost = Callable[[Mapping[str, str]], Host]
LINUX = platform.system() == "Linux"
NO_ENGINE = Probe(None, None, "uncia-engine is not installed")

CPUINFO = "processor\t: 0\nmodel name\t: Example 9000\nflags\t\t: fpu vme hypervisor sse\n"
STATUS_ALL = "Name:\tx\nCapEff:\t000001fffeffffff\n"
STATUS_NONE = "Name:\tx\nCapEff:\t0000000000000000\n"


def _check(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.id == name)


def _v2(options: str = "rw,nosuid") -> dict[str, str]:
    return {
        "/proc/self/mountinfo": f"30 23 0:26 / /sys/fs/cgroup {options} - cgroup2 cgroup2 rw\n",
        "/proc/self/cgroup": "0::/user.slice/me\n",
        "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
    }


def _v1(controllers: str) -> dict[str, str]:
    lines, selected = [], []
    for number, names in enumerate(controllers.split()):
        at = f"/sys/fs/cgroup/{names} rw,nosuid shared:{number}"
        lines.append(f"{40 + number} 23 0:30 / {at} - cgroup cgroup rw,{names}")
        selected.append(f"{number + 2}:{names}:/me")
    files = {"/proc/self/mountinfo": "\n".join(lines), "/proc/self/cgroup": "\n".join(selected)}
    for names in controllers.split():
        files[f"/sys/fs/cgroup/{names}/me/cgroup.procs"] = ""
    return files


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_this_machine_is_examined() -> None:
    report = examine(0.05)
    ids = [check.id for check in report.checks]
    assert len(ids) == len(set(ids))
    assert {"system", "engine", "runtime-python", "cgroup", "perf-hardware", "cpus"} <= set(ids)
    facts = json.loads(json.dumps(report.machine()))
    assert facts["kernel"] == platform.release()
    assert facts["cpus"] >= 1
    assert facts["memory_bytes"] > 1 << 20
    assert facts["hz"] in (24, 32, 48, 64, 100, 128, 200, 250, 256, 300, 500, 512, 1000, 1024, 1200)
    assert facts["noise"]["duration_s"] == 0.05
    assert facts["noise"]["timer_late_p50_us"] <= facts["noise"]["timer_late_p99_us"]
    assert set(report.to_dict()) == {"checks", "machine"}


def test_every_shortcoming_has_a_consequence() -> None:
    for check in examine(0).checks:
        if check.status == "ok":
            assert not check.consequence
        else:
            assert check.consequence.endswith(".")
            assert check.remedy


def test_frameworks_that_are_not_installed_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (check,) = (check for check in examine(0).checks if check.id == "frameworks")
    assert check.status == "ok", "no other platform needs one"
    assert check.finding.startswith("The platform server has no framework. Not installed: ")
    assert check.finding.endswith("workerd (python -m uncia.functions.frameworks).")


def test_an_engine_of_docker_that_is_not_there_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def check() -> Check:
        (found,) = (it for it in examine(0).checks if it.id == "docker")
        return found

    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    assert check().status == "missing"
    assert check().finding == f"No Docker Engine is at {tmp_path}/none.sock: no such file."
    assert "DOCKER_HOST" in check().remedy
    monkeypatch.setenv("DOCKER_HOST", "ssh://elsewhere")
    assert "DOCKER_HOST is ssh://elsewhere" in check().finding


def test_without_a_duration_no_noise_is_measured() -> None:
    report = examine(0)
    assert report.machine()["noise"] is None
    assert not {"steal", "timer"} & {check.id for check in report.checks}
    with pytest.raises(ValueError, match="impossible"):
        examine(-1)


def test_examining_leaves_no_cgroup() -> None:
    examine(0)
    assert control_groups.named(f"uncia-doctor-{os.getpid()}") == []


def test_warnings_leave_out_what_only_profiles_or_other_functions_need() -> None:
    report = Report(
        (
            Check("a", "ok", "Fine."),
            Check("b", "warn", "Meagre.", "It costs."),
            Check("perf-hardware", "missing", "None.", "No IPC."),
            Check("runtime-wasm", "missing", "No host.", "No code."),
            Check("docker", "missing", "No Engine.", "No containers."),
            Check("branches", "missing", "No QEMU.", "No branches."),
            Check("bpf", "missing", "Not built.", "No schedule."),
        ),
        {},
    )
    assert report.warnings() == ["Meagre. It costs."]
    assert report.warnings(profiling=True) == ["Meagre. It costs.", "None. No IPC."]


def test_the_scheduler_is_watched_only_if_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def tried() -> Check:
        asked.append(True)
        return Check("bpf", "ok", "It is watched.")

    monkeypatch.setattr(programs, "_bpf", tried)
    assert "bpf" not in {check.id for check in examine(0, is_bpf_tried=False).checks}
    assert not asked
    assert "bpf" in {check.id for check in examine(0).checks}
    assert asked


def test_a_run_does_not_try_the_program_that_watches_the_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reached(Exception):
        pass

    def stop(duration_s: float, *, is_bpf_tried: bool = True) -> Report:
        assert duration_s > 0
        assert not is_bpf_tried
        raise Reached

    monkeypatch.setattr(doctor, "examine", stop)
    description: Any = None
    with pytest.raises(Reached):
        noise.MachineWatch().start(description, RunFolder(tmp_path))


def test_the_processor_is_read(machine: MakeHost) -> None:
    host = machine(
        {
            "/proc/cpuinfo": CPUINFO,
            "/proc/stat": "cpu  1 2 3 4\ncpu0 1 2 3 4\ncpu1 0 0 0 0\nintr 5\n",
            "/proc/meminfo": "MemTotal:       2048 kB\nSwapTotal:  0 kB\n",
            "/etc/os-release": 'NAME=x\nPRETTY_NAME="Example OS 1"\n',
            "/sys/devices/system/cpu/smt/active": "1\n",
            "/sys/kernel/debug/sched/base_slice_ns": "3000000\n",
        }
    )
    facts = host.facts()
    assert facts["cpu_model"] == "Example 9000"
    assert facts["cpus"] == 2
    assert facts["memory_bytes"] == 2 << 20
    assert facts["swap_bytes"] == 0
    assert facts["virtualised"] is True
    assert facts["smt"] is True
    assert facts["os"] == "Example OS 1"
    assert facts["scheduler_slice_ns"] == 3_000_000


def test_what_is_not_known_is_none(machine: MakeHost) -> None:
    host = machine({"/proc/empty": ""})
    facts = host.facts()
    for key in ("kernel", "memory_bytes", "virtualised", "clocksource", "cgroup_version", "smt"):
        assert facts[key] is None, key
    assert host.integer("/proc/empty") is None


@pytest.mark.parametrize(
    ("flags", "expected"),
    [("fpu sse", False), ("fpu hypervisor", True), ("fpu hypervisors", False)],
)
def test_virtualisation_is_told_from_the_flags(
    flags: str, expected: bool, machine: MakeHost
) -> None:
    assert machine({"/proc/cpuinfo": f"flags : {flags}\n"}).virtualised() is expected


def test_cgroup_version_2_with_delegation_is_usable(machine: MakeHost) -> None:
    host = machine({**_v2(), "/sys/fs/cgroup/user.slice/me/cpu.max": "max 100000\n"})
    assert host.cgroup_version() == 2
    assert host.cpu_quota() is None
    check = _check(capability_checks(host, NO_ENGINE), "cgroup")
    assert check.status == "ok"
    assert "version 2" in check.finding


def test_cgroup_version_2_mounted_read_only_is_not(machine: MakeHost) -> None:
    check = _check(capability_checks(machine(_v2("ro,nosuid")), NO_ENGINE), "cgroup")
    assert check.status == "missing"
    assert "not limited in proportion to memory" in check.consequence


def test_cgroup_version_1_lacking_a_controller_says_what_that_costs(machine: MakeHost) -> None:
    host = machine(_v1("cpu,cpuacct memory pids"))
    assert host.cgroup_version() == 1
    check = _check(capability_checks(host, NO_ENGINE), "cgroup")
    assert check.status == "warn"
    assert check.finding == "cgroup version 1; not usable: freezer."
    assert check.consequence == "On the embedded platform idle instances are not frozen."
    full = machine(_v1("cpu,cpuacct memory pids freezer"))
    assert _check(capability_checks(full, NO_ENGINE), "cgroup").status == "ok"


def test_a_hybrid_hierarchy_counts_as_version_1(machine: MakeHost) -> None:
    files = _v1("cpu cpuacct memory pids freezer")
    files["/proc/self/mountinfo"] += "\n50 23 0:9 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
    files["/sys/fs/cgroup/unified/cgroup.controllers"] = "hugetlb\n"
    host = machine(files)
    assert host.cgroup_version() == 1
    assert {mount.version for mount in host.cgroup_mounts()} == {1, 2}


def test_no_cgroups_at_all(machine: MakeHost) -> None:
    check = _check(capability_checks(machine({"/proc/x": ""}), NO_ENGINE), "cgroup")
    assert check.status == "missing"
    assert "neither limited nor metered" in check.consequence


def test_a_quota_on_ourselves_is_told(machine: MakeHost) -> None:
    two = machine({**_v2(), "/sys/fs/cgroup/user.slice/me/cpu.max": "150000 100000\n"})
    assert two.cpu_quota() == 1.5
    check = _check(capability_checks(two, NO_ENGINE), "cpus")
    assert check.status == "warn"
    assert "1.5 CPUs" in check.finding


def test_a_quota_of_version_1_is_read(machine: MakeHost) -> None:
    result = machine(
        {
            **_v1("cpu"),
            "/sys/fs/cgroup/cpu/me/cpu.cfs_quota_us": "50000\n",
            "/sys/fs/cgroup/cpu/me/cpu.cfs_period_us": "100000\n",
        }
    )
    assert result.cpu_quota() == 0.5


def test_a_single_cpu_is_told(machine: MakeHost) -> None:
    host = machine({"/proc/stat": "cpu  1 2 3 4\ncpu0 1 2 3 4\n"})
    assert _check(capability_checks(host, NO_ENGINE), "cpus").status == "warn"


@pytest.mark.parametrize(
    ("files", "root", "status"),
    [
        ({"/proc/self/ns/user": "", "/proc/sys/user/max_user_namespaces": "100"}, False, "ok"),
        ({"/proc/self/ns/user": "", "/proc/sys/user/max_user_namespaces": "0"}, False, "missing"),
        ({"/proc/self/ns/user": "", "/proc/sys/user/max_user_namespaces": "0"}, True, "ok"),
        ({"/proc/self/ns/mnt": ""}, False, "missing"),
        (
            {
                "/proc/self/ns/user": "",
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1",
            },
            False,
            "missing",
        ),
        (
            {"/proc/self/ns/user": "", "/proc/sys/kernel/unprivileged_userns_clone": "0"},
            False,
            "missing",
        ),
    ],
)
def test_user_namespaces(
    files: dict[str, str],
    root: bool,
    status: str,
    machine: MakeHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = machine(files)
    monkeypatch.setattr(Host, "root_user", lambda self: root)
    checks = capability_checks(host, NO_ENGINE)
    assert _check(checks, "user-namespaces").status == status
    assert _check(checks, "root").status == ("ok" if root else "warn")


def test_namespaces_need_a_capability(machine: MakeHost) -> None:
    kinds = {f"/proc/self/ns/{kind}": "" for kind in ("mnt", "pid", "ipc", "uts", "net")}
    able = machine({**kinds, "/proc/self/status": STATUS_ALL})
    assert _check(capability_checks(able, NO_ENGINE), "namespaces").status == "ok"
    unable = machine({"/proc/self/status": STATUS_NONE})
    assert _check(capability_checks(unable, NO_ENGINE), "namespaces").status == "warn"
    (unable.root / "proc/self/ns/net").unlink()
    check = _check(capability_checks(unable, NO_ENGINE), "namespaces")
    assert check.status == "missing"
    assert "network" in check.finding


def test_clock_frequency_and_swap(machine: MakeHost) -> None:
    governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    clock = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
    slow = machine(
        {
            governor: "powersave\n",
            clock: "hpet\n",
            "/proc/meminfo": "SwapTotal: 4096 kB\nSwapFree: 1024 kB\n",
        }
    )
    checks = capability_checks(slow, NO_ENGINE)
    assert [_check(checks, name).status for name in ("frequency", "clock", "swap")] == ["warn"] * 3
    assert "3 MB" in _check(checks, "swap").finding
    quick = machine(
        {
            governor: "performance\n",
            clock: "tsc\n",
            "/proc/meminfo": "SwapTotal: 4096 kB\nSwapFree: 4096 kB\n",
        }
    )
    checks = capability_checks(quick, NO_ENGINE)
    assert [_check(checks, name).status for name in ("frequency", "clock", "swap")] == ["ok"] * 3


def _engine(folder: Path, body: str) -> Path:
    path = folder / "uncia-engine"
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("print('{\"cgroup\": 1}')", ""),
        ("print('nonsense')", "failed"),
        ("print('[1]')", "failed"),
        ("print('{}'); raise SystemExit(3)", "exit code 3"),
    ],
)
def test_the_engine_is_asked(
    body: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _engine(tmp_path, body)
    monkeypatch.setenv("UNCIA_ENGINE", str(path))
    probe = engine_probe()
    assert probe.path == path
    assert problem in probe.problem
    assert (probe.answer is None) == bool(problem)
    check = _check(capability_checks(Host(), probe), "engine")
    assert check.status == ("warn" if problem else "ok")


@pytest.mark.skipif(not LINUX, reason="the embedded platform is for Linux")
def test_what_the_engine_cannot_enforce_is_told() -> None:
    def told(result: dict[str, object]) -> list[Check]:
        checks = capability_checks(Host(), Probe(Path("/engine"), result))
        return [check for check in checks if check.id == "sandbox"]

    (restricted,) = told({"warnings": ["memory is not limited", "No seccomp."]})
    assert restricted.status == "warn"
    assert restricted.finding == "Memory is not limited. No seccomp."
    assert [check.status for check in told({"warnings": []})] == ["ok"]
    assert told({}) == []
    assert told({"warnings": 3}) == []


def test_a_missing_engine_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNCIA_ENGINE", str(tmp_path / "nowhere"))
    probe = engine_probe()
    assert probe.path is None
    assert _check(capability_checks(Host(), probe), "engine").status == "missing"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "not installed"),
        ("echo v12.22.9", "12.22.9"),
        ("echo nonsense", "does not print"),
        ("exit 1", "does not print"),
    ],
)
def test_a_missing_or_old_node_is_told(
    script: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is not None:
        node = tmp_path / "node"
        node.write_text(f"#!/bin/sh\n{script}\n")
        node.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    checks = capability_checks(Host(), NO_ENGINE)
    assert _check(checks, "runtime-python").status == "ok"
    assert _check(checks, "runtime-node").status == "missing"
    assert message in _check(checks, "runtime-node").finding


@pytest.mark.skipif(not LINUX, reason="perf is Linux's")
def test_perf_counts_or_says_why_not() -> None:
    for event in (SOFTWARE_TASK_CLOCK, HARDWARE_CYCLES):
        counted = perf.count(event)
        assert (counted.count is None) == bool(counted.reason)
        assert counted.count is None or counted.count > 0
    assert perf.count((99, 99)).count is None
