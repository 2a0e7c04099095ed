"""Files of FaaSProfiler become Uncia's; of both tools, mistakes are named by their key."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from originals import PROFILER, STELLAR, instance, read, sub
from typer.testing import CliRunner

from uncia import yamlio
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.experiment import files
from uncia.workload import importers
from uncia.workload import model as workload


def test_a_profilers_scripts_are_a_monitor(write: Callable[..., Path]) -> None:
    scripts = {"runtime_script": "Perf.sh", "post_script": "../Done.sh"}
    imported = importers.convert(write(PROFILER, perf_monitoring=scripts))
    (monitor,) = read(imported).monitors
    assert (monitor.start, monitor.after) == (["./Perf.sh", "15"], ["../Done.sh"])
    assert any("which the original forgets" in warning for warning in imported.warnings)


@pytest.mark.parametrize(("seconds", "written"), [(1_234_567, "1234567"), (20.5, "20.5")])
def test_a_profilers_script_is_told_how_long_the_test_is(
    write: Callable[..., Path], seconds: float, written: str
) -> None:
    scripts = {"runtime_script": "Perf.sh"}
    path = write(PROFILER, perf_monitoring=scripts, test_duration_in_seconds=seconds)
    (monitor,) = read(importers.convert(path)).monitors
    assert monitor.start == ["./Perf.sh", written]


def test_a_profiler_workload(write: Callable[..., Path]) -> None:
    imported = importers.convert(write(PROFILER))
    file = read(imported)
    assert imported.kind == "workload"
    assert file.seed == 100
    first, second = file.streams
    assert first.arrivals.engine() == {
        "kind": "windows",
        "process": {"kind": "random_phase", "rate_per_s": "1", "duration_ns": 15_000_000_000},
        "windows_ns": [[5_000_000_000, 10_000_000_000]],
    }
    assert second.arrivals.engine() == {
        "kind": "poisson",
        "rate_per_s": "0.1",
        "duration_ns": 15_000_000_000,
    }
    function = file.functions["instance1"]
    assert function.url == "http://127.0.0.1:8080/f"
    assert json.loads(function.body.text) == {"message": "sample.png"}
    assert [warning.split(":")[0] for warning in imported.warnings] == ["blocking_cli"]


def test_gaps_are_kept_exactly_and_cut_at_the_end_of_the_test(write: Callable[..., Path]) -> None:
    gaps = [0.1, 0.2, 0, 14.7, 0.000001]
    path = write(PROFILER, instances=instance(interarrivals_list=gaps, activity_window=[1, 2]))
    imported = importers.convert(path)
    process = read(imported).streams[0].arrivals.engine()
    assert process == {"kind": "gaps", "gaps_ns": [100_000_000, 200_000_000, 0, 14_700_000_000]}
    ignored = [warning for warning in imported.warnings if "ignores it beside" in warning]
    assert len(ignored) == 3, "distribution, rate and window"
    assert any("1 of 5 requests" in warning for warning in imported.warnings)


def test_openwhisk_is_where_the_command_says(write: Callable[..., Path]) -> None:
    path = write(PROFILER, endpoint="local_openwhisk", blocking_cli=True)
    imported = importers.convert(path)
    assert read(imported).functions["instance1"].url.startswith("https://localhost/")
    assert any("https://localhost taken" in warning for warning in imported.warnings)
    options = importers.Options(openwhisk="https://10.0.0.1/")
    imported = importers.convert(path, options=options)
    function = read(imported).functions["instance1"]
    assert function.url == "https://10.0.0.1/api/v1/namespaces/_/actions/example_app1"
    assert function.query == {"blocking": "true", "result": "true"}
    ignored = [warning for warning in imported.warnings if "with local_openwhisk" in warning]
    assert len(ignored) == 4, "url and data of both"


def test_names_of_actions_may_have_blanks(write: Callable[..., Path]) -> None:
    action = instance(application="my package/my action@1.0")["one"]
    for changes, path in (({}, "api/v1/namespaces/_/actions"), ({"data_file": "a.jpg"}, "web")):
        instances = {"one": {**action, **changes}}
        original = write(PROFILER, endpoint="local_openwhisk", instances=instances)
        url = read(importers.convert(original)).functions["one"].url
        assert path in url
        assert url.endswith("/my%20package/my%20action%401.0")


def test_keys_that_faasprofiler_never_reads_are_left_out(write: Callable[..., Path]) -> None:
    path = write(PROFILER, serverless_platform="generic", instances=instance(host="example.org"))
    warnings = importers.convert(path).warnings
    assert "serverless_platform: the original never reads it; left out" in warnings
    assert "instances.one.host: the original never reads it; left out" in warnings


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (PROFILER, {"tset": 1}, "tset"),
        (PROFILER, {"instances": instance(rat=5)}, "instances.one.rat"),
        (PROFILER, {"instances": instance(rate="5")}, "instances.one.rate"),
        (PROFILER, {"instances": instance(rate=-5)}, "a rate is not negative"),
        (PROFILER, {"instances": instance(rate=0)}, "no instance sends anything"),
        (PROFILER, {"instances": instance(rate=...)}, "needs distribution and rate"),
        (PROFILER, {"instances": instance(url=...)}, "needs a url"),
        (PROFILER, {"instances": instance(data=...)}, "needs data"),
        (PROFILER, {"instances": instance(distribution="Normal")}, "instances.one.distribution"),
        (PROFILER, {"instances": instance(activity_window=[5])}, r"a window is \[start, end\]"),
        (PROFILER, {"instances": instance(activity_window=[9, 5])}, "ends after its start"),
        (PROFILER, {"instances": instance(interarrivals_list=[1, -1])}, r"interarrivals_list\[1\]"),
        (PROFILER, {"test_duration_in_seconds": 0}, "lasts longer than 0 s"),
        (STELLAR, {"Sequentail": True}, "Sequentail"),
        (STELLAR, {"SubExperiments": []}, "SubExperiments"),
        (STELLAR, {"SubExperiments": sub(Burst=3)}, r"SubExperiments\[0\].Burst"),
        (STELLAR, {"SubExperiments": sub(BurstSizes=[])}, "fails without burst sizes"),
        (STELLAR, {"SubExperiments": sub(BurstSizes=[1, 0])}, r"BurstSizes\[1\]"),
        (STELLAR, {"SubExperiments": sub(IATSeconds=-1)}, "an interval is not negative"),
        (STELLAR, {"SubExperiments": sub(IATSeconds=0)}, "back to back .* of changing sizes"),
        (STELLAR, {"SubExperiments": sub(PackageType="Tar")}, r"SubExperiments\[0\].PackageType"),
        (STELLAR, {"SubExperiments": sub(SnapStartEnabled=True)}, "lacks snapshots"),
        (STELLAR, {"SubExperiments": sub(CPUBoostEnabled=True)}, "lacks more CPU during a start"),
        (STELLAR, {"SubExperiments": sub(DesiredServiceTimes=["1"])}, "is no duration of Go"),
        (STELLAR, {"SubExperiments": sub(DesiredServiceTimes=["1min"])}, "is no unit 'min'"),
        (STELLAR, {"SubExperiments": sub(DesiredServiceTimes=["-1s"])}, "is not negative"),
        (STELLAR, {"SubExperiments": sub(DesiredServiceTimes=["9999999h"])}, "beyond the range"),
        (STELLAR, {"SubExperiments": sub(Bursts=10**30)}, "less than or equal to"),
        (STELLAR, {"SubExperiments": sub(BurstSizes=[10**30])}, r"BurstSizes\[0\]"),
        (
            STELLAR,
            {
                "SubExperiments": sub(
                    DataTransferChainLength=2, PayloadLengthBytes=9, DesiredServiceTimes=["1s"]
                )
            },
            "lacks a function that hands a payload on and burns CPU time",
        ),
        (
            STELLAR,
            {"SubExperiments": sub(Function="chameleon")},
            "lacks a function that does what 'chameleon'",
        ),
        ({}, {}, "the tool of this file is not recognised"),
    ],
)
def test_bad_files_name_the_key(
    write: Callable[..., Path], base: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnciaError, match=message):
        importers.convert(write(base, **changes))


def test_the_line_is_told(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text('{\n\t"SubExperiments": [\n\t{"Title": "x",\n\t "Bursts": "many"}]}')
    with pytest.raises(UnciaError, match=r"w\.json:4: SubExperiments\[0\]\.Bursts"):
        importers.convert(path)
    path.write_text('{"SubExperiments": [1,]}')
    with pytest.raises(UnciaError, match=r"w\.json:1: this is not valid JSON"):
        importers.convert(path)
    path.write_text('{"SubExperiments": NaN}')
    with pytest.raises(UnciaError, match="NaN is not a number"):
        importers.convert(path)


def test_the_command_writes_a_file_that_uncia_reads(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    out = tmp_path / "out.yaml"
    run = CliRunner()
    done = run.invoke(build(), ["workload", "import", str(write(STELLAR)), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "warning: Provider" in done.stderr
    files.load(out)
    again = run.invoke(build(), ["workload", "import", str(write(STELLAR)), "--out", str(out)])
    assert isinstance(again.exception, UnciaError)
    printed = run.invoke(build(), ["workload", "import", str(write(PROFILER))])
    workload.check(yamlio.load(printed.stdout))


def test_a_result_that_cannot_be_read_is_written_and_its_line_told(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    bad = instance(url="ftp://x", data=None)
    path = write(PROFILER, endpoint="generic", instances=bad)
    out = tmp_path / "out.yaml"
    run = CliRunner()
    done = run.invoke(build(), ["workload", "import", str(path), "--out", str(out)])
    assert isinstance(done.exception, UnciaError)
    line = 1 + out.read_text().splitlines().index("    url: ftp://x")
    assert done.exception.message.startswith(f"{out}:{line}: functions.")
    printed = run.invoke(build(), ["workload", "import", str(path)])
    assert printed.stdout == out.read_text()
    assert isinstance(printed.exception, UnciaError)
    assert printed.exception.message.startswith(f"<stdout>:{line}: functions.")
    wrong = run.invoke(build(), ["workload", "import", str(write(STELLAR)), "--platform", "foo"])
    assert isinstance(wrong.exception, UnciaError)
    assert wrong.exception.message.startswith("--platform: there is no platform 'foo'")


@given(data=st.binary(max_size=300))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
def test_any_bytes_are_read_or_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "any.json"
    path.write_bytes(data)
    with pytest.raises(UnciaError):
        importers.convert(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(data=st.data())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
def test_any_value_anywhere_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    """With one value replaced it is still a file that Uncia reads, or an error of ours."""
    base = data.draw(st.sampled_from([PROFILER, STELLAR]))
    changed = json.loads(json.dumps(base))
    index: Any = changed
    while True:
        keys = list(index) if isinstance(index, dict) else list(range(len(index)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(index[key], dict | list) or not index[key] or data.draw(st.booleans()):
            break
        index = index[key]
    index[key] = data.draw(JSON)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(changed))
    with contextlib.suppress(UnciaError):
        read(importers.convert(path))


def test_json_may_hold_characters_that_yaml_may_not(tmp_path: Path) -> None:
    path = tmp_path / "workload.json"
    path.write_text('{"test_name": "a\x7fb\x9f\ufffe",\n "test_duration_in_seconds": "x"}')
    result, _ = importers.read(path)
    assert result.data["test_name"] == "a\x7fb\x9f\ufffe"
    assert result.line(("test_duration_in_seconds",)) == 2
    path.write_text('{"test_name": "a\x01b"}')
    with pytest.raises(UnciaError, match="not valid JSON"):
        importers.read(path)
