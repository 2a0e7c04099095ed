"""The monitors ``bpftrace`` and ``resctrl``: files that name them, and what a killed one leaves."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from patience import scaled

from uncia import engine, record
from uncia.doctor import programs
from uncia.doctor.everywhere import Everywhere
from uncia.doctor.monitors import Asked, Host, Monitors, end_timeout_s, start_timeout_s
from uncia.doctor.programs import program_checks
from uncia.errors import UnciaError
from uncia.experiment import files
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.report.monitored import is_bin
from uncia.suites import lacking
from uncia.workload import model as workloads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="monitors are of Linux")


def _why_no_bpftrace() -> str | None:
    """Return why bpftrace cannot be tested here."""
    check = next(check for check in program_checks() if check.id == "bpftrace")
    return None if check.status == "ok" else check.finding


_needs_bpftrace = pytest.mark.skipif(
    (_reason := _why_no_bpftrace()) is not None, reason=str(_reason)
)


def _write(folder: Path, monitor: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(
        "name: x\nplatform: {kind: embedded}\nfunctions: {f: {source: hello}}\n"
        "experiments: {e: {function: f, arrivals: {kind: burst, sizes: [1]}}}\n"
        f"monitors:\n- {monitor}\n"
    )
    return path


def _asked(path: Path) -> dict[str, Any]:
    """What the engine is asked for."""
    file, document = files.load(path)
    plan(file, Sources(document, path.parent))
    return file.monitors[0].asked.config


@pytest.mark.parametrize(
    ("monitor", "message"),
    [
        ("{monitor: bpftrace}", "monitors[0]: the monitor bpftrace runs a file of its language"),
        (
            "{monitor: perf, file: a.bt}",
            "file is of the monitor bpftrace, not of perf",
        ),
        ("{monitor: bpftrace, file: absent.bt}", "monitors[0].file: "),
        ("{monitor: bpftrace, file: empty.bt}", "empty.bt is empty: a program has 1 to 61,440"),
        ("{monitor: bpftrace, file: long.bt}", "long.bt has 70,000 bytes"),
        ("{monitor: bpftrace, file: binary.bt}", "cannot be read: it is not text in UTF-8"),
        ("{monitor: bpftrace, file: a.bt, groups: [/a]}", "bpftrace is of the whole machine"),
        ("{monitor: perf, limits: {ways: 2}}", "limits is of the monitor resctrl, not of perf"),
        ("{monitor: perf, root: /a}", "root is of the monitor resctrl, not of perf"),
        ("{monitor: resctrl, limits: {}}", "limits are empty: give llc, ways, mask or bandwidth"),
        ("{monitor: resctrl, limits: {ways: 2, llc: 4MB}}", "the cache is limited twice"),
        ("{monitor: resctrl, limits: {ways: 0}}", "monitors[0].limits.ways: "),
        ("{monitor: resctrl, limits: {bandwidth: 120%}}", "limits.bandwidth: '120%' is not a perc"),
        ('{monitor: resctrl, limits: {mask: "xyz"}}', "monitors[0].limits.mask: "),
        ("{monitor: resctrl, limits: {way: 2}}", "monitors[0].limits.way: "),
    ],
)
def test_what_cannot_be_is_told_with_file_and_line(
    tmp_path: Path, monitor: str, message: str
) -> None:
    (tmp_path / "a.bt").write_text("BEGIN { @a = 1; }")
    (tmp_path / "empty.bt").write_text(" \n")
    (tmp_path / "long.bt").write_text("/" * 70_000)
    (tmp_path / "binary.bt").write_bytes(b"\xff\xfe")
    with pytest.raises(UnciaError) as error:
        _asked(_write(tmp_path, monitor))
    assert "run.yaml:6: monitors[0]" in error.value.message
    assert message in error.value.message


def test_programs_are_read_beside_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "a.bt").write_text("BEGIN { @a = 1; }")
    asked = _asked(_write(tmp_path, "{monitor: bpftrace, file: ./a.bt}"))
    assert (asked["program"], asked["file"]) == ("BEGIN { @a = 1; }", "a.bt")
    workload = tmp_path / "load.yaml"
    text = (
        "name: x\nfunctions: {f: {url: 'http://localhost:1/'}}\n"
        "streams: [{function: f, arrivals: {kind: burst, sizes: [1]}}]\n"
        "monitors: [{monitor: bpftrace, file: a.bt}]\n"
    )
    workload.write_text(text)
    loaded, _ = workloads.load(workload)
    assert loaded.monitors[0].asked.program == "BEGIN { @a = 1; }"
    workload.write_text(text.replace("a.bt", "absent.bt"))
    with pytest.raises(UnciaError, match=r"load.yaml:4: monitors\[0\].file: .*absent.bt cannot be"):
        workloads.load(workload)


def test_limits_are_in_the_engines_units(tmp_path: Path) -> None:
    monitor = "{monitor: resctrl, root: /r, limits: {llc: 4MB, bandwidth: 50%}}"
    asked = _asked(_write(tmp_path, monitor))
    assert asked["root"] == "/r"
    assert asked["limits"] == {"llc_bytes": 4 << 20, "bandwidth_percent": 50.0}
    masked = _asked(_write(tmp_path, '{monitor: resctrl, limits: {mask: "0xf0"}}'))
    assert masked["limits"] == {"mask": "0xf0"}


def _tree(root: Path) -> None:
    """Make a file system up: a domain of 11 ways, which are not to be had for limits."""
    texts = {
        "info/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\n",
        "info/L3/cbm_mask": "7ff\n",
        "info/L3/min_cbm_bits": "1\n",
        "info/L3/num_closids": "4\n",
        "schemata": "    L3:0=7ff\n",
        "size": "    L3:0=11534336\n",
        "tasks": "",
        "mon_data/mon_L3_00/llc_occupancy": "65536\n",
        "mon_data/mon_L3_00/mbm_total_bytes": "Unavailable\n",
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_counters_of_a_made_up_tree_are_rows(tmp_path: Path) -> None:
    _tree(tmp_path / "r")
    stream = tmp_path / "rows.arrows"
    asked = [Asked("resctrl", 20_000_000, root=str(tmp_path / "r"))]
    monitors = Everywhere.start(asked, lambda _: stream, time.time_ns())
    time.sleep(0.2)
    assert monitors.stop() == [
        "monitor resctrl: the processor or kernel does not count mbm_local_bytes"
    ]
    rows = record.read(stream, "machine").to_pylist()
    values = {row["value"] for row in rows if row["counter"] == "resctrl.llc_occupancy_bytes"}
    assert values == {65536.0}
    assert not [row for row in rows if "mbm" in row["counter"]]
    assert sum(row["value"] for row in rows if row["counter"] == "monitor.lost_count") >= 2


@pytest.mark.parametrize("hosts", [(), (Host("ssh://127.0.0.1:1"),)])
def test_without_its_limits_a_run_does_not_begin(tmp_path: Path, hosts: tuple[Host, ...]) -> None:
    _tree(tmp_path / "r")
    groups = ["/uncia-test-absent"]
    limits = {"ways": 12}
    asked = Asked("resctrl", root=str(tmp_path / "r"), limits=limits, groups=groups, hosts=hosts)
    with pytest.raises(UnciaError) as error:
        Everywhere.start([asked], lambda _: tmp_path / "rows.arrows", time.time_ns())
    words = "limits cannot be set: 12 ways of the last-level cache are out of range: it has 11"
    assert words in error.value.message or hosts
    assert sorted(path.name for path in (tmp_path / "r").iterdir() if path.is_dir()) == [
        "info",
        "mon_data",
    ]


def test_limits_are_of_control_groups(tmp_path: Path) -> None:
    _tree(tmp_path / "r")
    asked = Asked("resctrl", root=str(tmp_path / "r"), limits={"ways": 2})
    with pytest.raises(UnciaError) as error:
        Everywhere.start([asked], lambda _: tmp_path / "rows.arrows", time.time_ns())
    assert "the limits of resctrl are of no control group: name some by groups" in str(error.value)


def test_control_groups_that_were_never_there_are_told(tmp_path: Path) -> None:
    if " - cgroup" not in Path("/proc/self/mountinfo").read_text():
        pytest.skip("no tree of control groups is mounted")
    _tree(tmp_path / "r")
    asked = Asked("resctrl", name="cache", root=str(tmp_path / "r"), groups=["/uncia-test-absent"])
    monitors = Everywhere.start([asked], lambda _: tmp_path / "rows.arrows", time.time_ns())
    assert monitors.stop() == [
        "monitor cache: the processor or kernel does not count mbm_local_bytes",
        "monitor cache: no control group is named /uncia-test-absent: nothing was counted",
    ]


def test_each_program_has_its_time_to_begin_and_to_end() -> None:
    single = [Asked("command", after=["true"]), Asked("machine")]
    both = [*single, Asked("bpftrace", program="BEGIN {}")]
    for limit in (start_timeout_s, end_timeout_s):
        assert limit(single) - limit([]) >= 60 + 2
        assert limit(both) - limit([]) == 2 * (limit(single) - limit([]))


def test_what_is_not_there_is_a_sentence_and_no_rows(tmp_path: Path) -> None:
    asked = [Asked("resctrl", root=str(tmp_path)), Asked("machine")]
    monitors = Everywhere.start(asked, lambda _: tmp_path / "rows.arrows", time.time_ns())
    assert monitors.watching == ["machine"]
    assert monitors.stop() == [
        "monitor resctrl: not supported on this machine: no resctrl is mounted at"
        f" {tmp_path}: there is no info in it"
    ]
    rows = record.read(tmp_path / "rows.arrows", "machine").to_pylist()
    assert not [row for row in rows if row["monitor"] == "resctrl"]


def test_the_doctor_says_what_is_missing() -> None:
    check = next(check for check in program_checks() if check.id == "resctrl")
    kinds = Path("/proc/filesystems").read_text().splitlines()
    if any(line.split()[-1] == "resctrl" for line in kinds):
        assert check.status == "ok" or "resctrl" in check.finding
    else:
        assert check.status == "missing"
        assert check.finding.startswith("The kernel has no resctrl, ")


@pytest.mark.parametrize(
    ("sentences", "status", "finding"),
    [
        ([], "ok", "The last-level cache and the memory's bandwidth are counted."),
        (
            ["monitor resctrl: the processor or kernel does not count mbm_local_bytes"],
            "ok",
            "are counted. The processor or kernel does not count mbm_local_bytes.",
        ),
        (
            ["monitor resctrl: the processor or kernel does not count llc_occupancy"],
            "ok",
            "The memory's bandwidth is counted. The processor or kernel does not count"
            " llc_occupancy.",
        ),
        (
            [
                "monitor resctrl: /sys/fs/resctrl/x, which an earlier run left, was removed",
                "monitor resctrl: the processor or kernel does not count mbm_total_bytes and"
                " mbm_local_bytes",
            ],
            "missing",
            "The processor or kernel does not count mbm_total_bytes and mbm_local_bytes.",
        ),
    ],
)
def test_the_doctor_says_what_of_it_is_not_counted(
    monkeypatch: pytest.MonkeyPatch, sentences: list[str], status: str, finding: str
) -> None:
    monitors = Monitors(watching=["resctrl"], sentences=sentences)
    monkeypatch.setattr(Monitors, "start", lambda *_, **__: monitors)
    check = programs.resctrl()
    assert check.status == status
    assert check.finding.endswith(finding)
    lacking._of_resctrl.cache_clear()
    assert bool(lacking._of_resctrl()) == (status != "ok")
    lacking._of_resctrl.cache_clear()


@pytest.mark.parametrize(
    ("counter", "is_one"),
    [
        ("bpftrace.cat.wait_within_2047ns_count", True),
        ("bpftrace.h_within_-1_count", True),
        ("bpftrace.h_from_50_count", True),
        ("bpftrace.h_count", False),
    ],
)
def test_bins_of_maps_are_bins(counter: str, is_one: bool) -> None:
    assert is_bin(counter) == is_one


@_needs_bpftrace
def test_mistakes_of_a_program_are_told_before_the_run(tmp_path: Path) -> None:
    asked = [Asked("bpftrace", program="BEGIN { foo(); }", file="mine.bt"), Asked("machine")]
    monitors = Everywhere.start(asked, lambda _: tmp_path / "rows.arrows", time.time_ns())
    assert monitors.watching == ["machine"]
    (sentence,) = monitors.sentences
    assert "mine.bt:1:9-12: ERROR: Unknown function: foo" in sentence
    monitors.stop()


def _watching(rows: Path, monitor: dict[str, Any]) -> "subprocess.Popen[str]":
    """Start an engine with a monitor, and wait until it watches."""
    process = subprocess.Popen(
        [engine.binary(), "monitor", "--until-eof"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    config = {"out": str(rows), "epoch_unix_ns": 0, "monitors": [monitor]}
    process.stdin.write(json.dumps(config) + "\n")
    process.stdin.flush()
    while json.loads(process.stderr.readline())["event"] != "started":
        pass
    return process


def _kill(process: "subprocess.Popen[str]") -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_what_a_killed_engine_left_is_removed_by_the_next(tmp_path: Path) -> None:
    if " - cgroup" not in Path("/proc/self/mountinfo").read_text():
        pytest.skip("no tree of control groups is mounted")
    root = tmp_path / "r"
    _tree(root)
    (root / "mon_groups/theirs").mkdir(parents=True)
    monitor = {"monitor": "resctrl", "root": str(root), "groups": ["/"]}
    first = _watching(tmp_path / "first.arrows", monitor)
    (mine,) = {path.name for path in (root / "mon_groups").iterdir()} - {"theirs"}
    assert mine.startswith(f"uncia-monitor-{first.pid}-")
    _kill(first)
    assert (root / "mon_groups" / mine).is_dir()
    asked = [Asked("resctrl", root=str(root))]
    monitors = Everywhere.start(asked, lambda _: tmp_path / "rows.arrows", time.time_ns())
    assert any(f"{mine}, which an earlier run left, was removed" in it for it in monitors.stop())
    assert [path.name for path in (root / "mon_groups").iterdir()] == ["theirs"]


@_needs_bpftrace
def test_bpftrace_ends_with_an_engine_that_is_killed(tmp_path: Path) -> None:
    monitor = {"monitor": "bpftrace", "program": "interval:ms:10 { @n = count(); }"}
    process = _watching(tmp_path / "rows.arrows", monitor)
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    children = [int(word) for path in tasks for word in path.read_text().split()]
    names = [Path(f"/proc/{child}/comm").read_text().strip() for child in children]
    assert Path(shutil.which("bpftrace") or "").name in names
    _kill(process)
    _wait_for_end(children)


def test_what_a_program_started_ends_with_an_engine_that_is_killed(tmp_path: Path) -> None:
    script, started = tmp_path / "endless.sh", tmp_path / "started"
    # The shell alone is the engine's child.
    script.write_text(f"sleep 600 & echo $! >> {started}; wait\n")
    monitor = {"monitor": "command", "start": ["sh", str(script)], "command": ["sh", str(script)]}
    process = _watching(tmp_path / "rows.arrows", monitor)
    deadline = time.monotonic() + scaled(10)
    while not started.exists() or len(started.read_text().splitlines()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    children = [int(word) for path in tasks for word in path.read_text().split()]
    _kill(process)
    _wait_for_end([*children, *map(int, started.read_text().split())])


def _wait_for_end(processes: list[int]) -> None:
    deadline = time.monotonic() + scaled(10)
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline
        time.sleep(0.05)
