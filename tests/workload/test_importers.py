"""Files of FaaSProfiler and STeLLAR become Uncia's, and say what the original ignored."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from uncia import yamlio
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.experiment import checks, files
from uncia.workload import importers
from uncia.workload import model as workload

PROFILER: dict[str, Any] = {
    "test_name": "example_test",
    "test_duration_in_seconds": 15,
    "random_seed": 100,
    "blocking_cli": False,
    "endpoint": "generic",
    "instances": {
        "instance1": {
            "application": "example_app1",
            "url": "http://127.0.0.1:8080/f",
            "data": {"message": "sample.png"},
            "distribution": "Uniform",
            "rate": 1,
            "activity_window": [5, 10],
        },
        "instance2": {
            "application": "example_app2",
            "url": "http://127.0.0.1:8080/g",
            "data": {},
            "distribution": "Poisson",
            "rate": 0.1,
        },
    },
    "perf_monitoring": {"runtime_script": None, "post_script": None},
}

STELLAR: dict[str, Any] = {
    "Sequential": True,
    "Provider": "aws",
    "Runtime": "python3.9",
    "SubExperiments": [
        {
            "Title": "warm",
            "Function": "hellopy",
            "Bursts": 12,
            "BurstSizes": [1, 10],
            "IATSeconds": 3,
            "IATType": "deterministic",
            "DesiredServiceTimes": ["0ms"],
        }
    ],
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes an original, with some keys changed, and gives its path."""

    def write(base: dict[str, Any], **changes: Any) -> Path:
        path = tmp_path / "original.json"
        path.write_text(json.dumps({**base, **changes}, indent="\t"))
        return path

    return write


def sub(**changes: Any) -> list[dict[str, Any]]:
    return [{**STELLAR["SubExperiments"][0], **changes}]


def instance(**changes: Any) -> dict[str, Any]:
    changed = {**PROFILER["instances"]["instance2"], **changes}
    return {"one": {key: value for key, value in changed.items() if value is not ...}}


def read(imported: importers.Imported) -> Any:
    """What Uncia makes of the result."""
    document = yamlio.load(yaml.safe_dump(imported.data, sort_keys=False))
    form = checks if imported.kind == "experiment" else workload
    return form.check(document)


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
    one = instance(application="my package/my action@1.0")
    for changes, path in (({}, "api/v1/namespaces/_/actions"), ({"data_file": "a.jpg"}, "web")):
        instances = {"one": {**one["one"], **changes}}
        original = write(PROFILER, endpoint="local_openwhisk", instances=instances)
        url = read(importers.convert(original)).functions["one"].url
        assert path in url
        assert url.endswith("/my%20package/my%20action%401.0")


def test_keys_that_faasprofiler_never_reads_are_left_out(write: Callable[..., Path]) -> None:
    path = write(PROFILER, serverless_platform="generic", instances=instance(host="example.org"))
    warnings = importers.convert(path).warnings
    assert "serverless_platform: the original never reads it; left out" in warnings
    assert "instances.one.host: the original never reads it; left out" in warnings


def test_a_stellar_experiment(write: Callable[..., Path]) -> None:
    imported = importers.convert(write(STELLAR))
    file = read(imported)
    warm = file.experiments["warm"]
    assert warm.arrivals.engine()["sizes"] == [1, 10]
    assert warm.arrivals.engine()["interval_ns"] == 3_000_000_000
    assert warm.arrivals.engine()["bursts"] == 12
    assert file.functions[warm.function].source == "hello"
    assert not any("ignores" in warning for warning in imported.warnings)


def test_replicas_keep_the_interval_of_each(write: Callable[..., Path]) -> None:
    changed = sub(Parallelism=3, BurstSizes=[1], Bursts=10)
    file = read(importers.convert(write(STELLAR, SubExperiments=changed)))
    warm = file.experiments["warm"]
    # One each second in turn: every replica each three seconds.
    assert warm.arrivals.engine()["interval_ns"] == 1_000_000_000
    assert warm.arrivals.engine()["bursts"] == 10
    assert file.functions[warm.function].replicas == 3
    changed = sub(Parallelism=3, BurstSizes=[5], Bursts=10)
    file = read(importers.convert(write(STELLAR, SubExperiments=changed)))
    mix = file.experiments["warm"].mix
    assert [stream.start for stream in mix] == [0, 1_000_000_000, 2_000_000_000]
    assert [stream.arrivals.engine()["bursts"] for stream in mix] == [4, 3, 3]
    assert len({stream.function for stream in mix}) == 3, "each burst is for one replica"


def test_what_stellar_ignored_is_told(write: Callable[..., Path]) -> None:
    changed = sub(
        FunctionMemoryMB=2048,
        PackageType="Container",
        BusySpinIncrements=[1],
        IATSeconds=0.5,
        DesiredServiceTimes=["0ms", "100ms"],
    )
    imported = importers.convert(write(STELLAR, SubExperiments=changed))
    message = "\n".join(imported.warnings)
    for key in ("FunctionMemoryMB", "PackageType", "BusySpinIncrements", "IATSeconds", "Desired"):
        assert f"SubExperiments[0].{key}" in message, key
    mix = read(imported).experiments["warm"].mix
    # Odd and even rounds take turns: sizes and service times go together.
    assert [stream.arrivals.engine()["sizes"] for stream in mix] == [[1], [10]]
    assert [stream.arrivals.engine()["interval_ns"] for stream in mix] == [1_000_000_000] * 2
    assert mix[1].start == 500_000_000


def test_stochastic_gaps_are_those_of_the_original(write: Callable[..., Path]) -> None:
    changed = sub(IATType="stochastic")
    gap = read(importers.convert(write(STELLAR, SubExperiments=changed))).experiments["warm"]
    assert gap.arrivals.engine()["gap"] == {
        "distribution": "exponential",
        "mean_ns": 1_098_612_289,  # ln 3
        "shift_ns": 3_000_000_000,
    }
    changed = sub(IATType="stochastic", IATSeconds=0.5)
    imported = importers.convert(write(STELLAR, SubExperiments=changed))
    assert read(imported).experiments["warm"].arrivals.engine()["interval_ns"] == 500_000_000
    assert any("constant or negative" in warning for warning in imported.warnings)


def test_keys_in_any_case_as_go_takes_them(write: Callable[..., Path]) -> None:
    lower = {key.lower(): value for key, value in STELLAR["SubExperiments"][0].items()}
    original = {"provider": "aws", "runtime": "python3.9", "subexperiments": [lower]}
    path = write({}, **original)
    assert "warm" in read(importers.convert(path)).experiments


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


def test_a_runtime_that_uncia_does_not_have_is_told_and_stays(write: Callable[..., Path]) -> None:
    path = write(STELLAR, SubExperiments=sub(Runtime="rust", Function="hellorust"))
    imported = importers.convert(path)
    assert any("lacks hello in rust" in warning for warning in imported.warnings)
    assert imported.data["functions"]["hellorust-128"]["runtime"] == "rust"
    imported = importers.convert(path, options=importers.Options(runtime="python"))
    assert imported.data["functions"]["hellorust-128"]["runtime"] == "python"


@pytest.mark.parametrize(
    ("function", "runtime", "language"),
    [
        ("hellogo", "go1.x", "go"),
        ("hellojava", "java11", "java"),
        ("helloruby", "ruby3.2", "ruby"),
        ("hellonode", "nodejs18.x", "node"),
        ("hellopy", "python3.9", "python"),
    ],
)
def test_hello_is_imported_in_its_language(
    function: str, runtime: str, language: str, write: Callable[..., Path]
) -> None:
    path = write(STELLAR, SubExperiments=sub(Runtime=runtime, Function=function))
    imported = importers.convert(path)
    assert imported.data["functions"][f"{function}-128"]["runtime"] == language
    assert not any("lacks" in warning for warning in imported.warnings)
    # What burns CPU time is there in three languages.
    busy = sub(Runtime=runtime, Function=function, DesiredServiceTimes=["1s"])
    imported = importers.convert(write(STELLAR, SubExperiments=busy))
    lacking = f"lacks spin in {runtime}"
    assert any(lacking in warning for warning in imported.warnings) == (
        language in {"java", "ruby"}
    )


def test_names_tell_experiments_of_one_title_apart(write: Callable[..., Path]) -> None:
    subs = [*sub(), *sub(FunctionMemoryMB=2048), *sub(DesiredServiceTimes=["1s"])]
    names = list(read(importers.convert(write(STELLAR, SubExperiments=subs))).experiments)
    assert names == ["warm-burst1", "warm-2048MB-burst1", "warm-burst1-1s"]


def test_without_an_interval_bursts_are_back_to_back(write: Callable[..., Path]) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"BurstSizes": [4], "Bursts": 3, "Parallelism": 2, "IATSeconds": 0},
        {"BurstSizes": [4], "Bursts": 3},
        {"BurstSizes": [1], "Bursts": 3, "Parallelism": 2},
    )
    result = []
    for change in changes:
        entry = sub(**change)[0]
        if "IATSeconds" not in change:
            del entry["IATSeconds"]
        imported = importers.convert(write(STELLAR, SubExperiments=[entry]))
        warm = read(imported).experiments["warm"]
        replicas = read(imported).functions[warm.function].replicas
        result.append((warm.arrivals, warm.closed.model_dump(exclude_defaults=True), replicas))
        assert any("each burst is sent when the one before is" in w for w in imported.warnings)
    assert result == [
        (None, {"clients": 4, "requests": 12, "together": True, "one_replica": True}, 2),
        (None, {"clients": 4, "requests": 12, "together": True}, 1),
        (None, {"clients": 1, "requests": 3}, 2),
    ]


def test_of_a_key_that_is_there_twice_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    text = json.dumps(STELLAR).replace('"Bursts"', '"Bursts": 1,\n"Bursts"')
    path.write_text(text)
    imported = importers.convert(path)
    assert read(imported).experiments["warm"].arrivals.engine()["bursts"] == 12
    assert imported.warnings[0] == (
        "SubExperiments[0].Bursts: the key is there again on line 2, which counts"
    )
    # Go ignores the case of keys.
    path.write_text(json.dumps(STELLAR).replace('"Bursts"', '"bursts": 1, "Bursts"'))
    imported = importers.convert(path)
    assert read(imported).experiments["warm"].arrivals.engine()["bursts"] == 12
    assert "SubExperiments[0].Bursts: the key is there again as Bursts, which counts" in (
        imported.warnings
    )


def test_equal_warnings_are_told_once_with_their_number(write: Callable[..., Path]) -> None:
    subs = [{**sub()[0], "Title": title, "Handler": "main.x"} for title in ("a", "b", "c")]
    imported = importers.convert(write(STELLAR, SubExperiments=subs))
    message = imported.distinct_warnings()
    assert "SubExperiments[0].Handler: Uncia has its own; left out (3 times)" in message
    assert len(message) == len(set(message)) == len(imported.warnings) - 2


def test_what_would_be_refused_is_not_suggested(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(STELLAR, SubExperiments=sub(Runtime="rust", Function="hellorust"))
    for extra, expected in (
        ([], "cannot run as it is: "),
        (["--runtime", "python"], "Next: uncia run"),
    ):
        out = tmp_path / f"{len(extra)}.yaml"
        command = ["workload", "import", str(path), "--out", str(out), *extra]
        done = CliRunner().invoke(build(), command)
        assert done.exit_code == 0, done.output
        assert expected in done.stderr
        assert ("Next:" in done.stderr) == bool(extra)


def test_replicas_that_cannot_run_are_refused_once(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    # Bursts of several requests at random gaps make a function of each replica.
    changed = sub(
        Runtime="rust", Function="hellorust", Parallelism=50, BurstSizes=[2], IATType="stochastic"
    )
    out = tmp_path / "out.yaml"
    command = ["workload", "import", str(write(STELLAR, SubExperiments=changed)), "--out", str(out)]
    done = CliRunner().invoke(build(), command)
    assert done.exit_code == 0, done.output
    last = done.stderr.splitlines()[-1]
    assert "cannot run as it is" in last
    assert last.endswith("(and 11 more lines like it)")
    assert done.stderr.count("does not exist") == 1


def test_a_function_of_all_sub_experiments_is_ignored_as_in_the_original(
    write: Callable[..., Path],
) -> None:
    entry = {key: value for key, value in sub()[0].items() if key != "Function"}
    imported = importers.convert(write(STELLAR, Function="chameleon", SubExperiments=[entry]))
    assert any(warning.startswith("Function: the original") for warning in imported.warnings)
    assert list(imported.data["functions"]) == ["producer-consumer-128"]


def test_a_plan_of_many_replicas_fits_a_screen(write: Callable[..., Path], tmp_path: Path) -> None:
    from uncia.experiment.planning import plan
    from uncia.experiment.progress import sends
    from uncia.experiment.sources import Sources

    changed = sub(Parallelism=146, BurstSizes=[5], Bursts=3000, IATType="stochastic")
    imported = importers.convert(write(STELLAR, SubExperiments=changed))
    document = yamlio.load(yamlio.dump(imported.data), "e.yaml")
    planned = plan(checks.check(document), Sources(document, tmp_path))
    words = sends(planned.experiments[0])
    assert "80 functions (hellopy-128-0 to hellopy-128-79) 21 bursts of 5" in words
    assert "66 functions (" in words
    assert len(words) < 300


def test_a_chain_is_nested_and_of_as_many_functions(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    from uncia.experiment import checks
    from uncia.experiment.planning import plan
    from uncia.experiment.sources import Sources

    changed = sub(
        Function="hellogo",
        Runtime="go1.x",
        DataTransferChainLength=8,
        BurstSizes=[1],
        Parallelism=2,
    )
    imported = importers.convert(write(STELLAR, SubExperiments=changed))
    chains = imported.data["chains"]
    assert [chain["stages"]["link"]["repeat"] for chain in chains.values()] == [8, 8]
    streams = imported.data["experiments"]["warm"]["mix"]
    assert [stream["chain"] for stream in streams] == list(chains)
    assert {stream["kind"] for stream in streams} == {"nested"}
    assert {function["runtime"] for function in imported.data["functions"].values()} == {"go"}
    document = yamlio.load(yamlio.dump(imported.data), "e.yaml")
    planned = plan(checks.check(document), Sources(document, tmp_path))
    assert planned.experiments[0].name == "warm"

    spinning = sub(DataTransferChainLength=2, BurstSizes=[1], DesiredServiceTimes=["10ms"])
    imported = importers.convert(write(STELLAR, SubExperiments=spinning))
    (chain,) = imported.data["chains"].values()
    assert chain["stages"]["link"]["parameters"] == {"cpu": "10ms"}
    assert imported.data["experiments"]["warm"]["wait"] == "20ms"


def test_payloads_are_handed_on_inline_and_by_the_store(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    from uncia.experiment.planning import plan
    from uncia.experiment.sources import Sources

    moving = {
        "Function": "producer-consumer",
        "Runtime": "go1.x",
        "PayloadLengthBytes": 1_048_576,
        "BurstSizes": [1],
        "FunctionMemoryMB": 1536,
    }
    subs = [
        *sub(**moving, Title="inline", DataTransferChainLength=8),
        *sub(**moving, Title="store", DataTransferChainLength=2, StorageTransfer=True),
    ]
    imported = importers.convert(write(STELLAR, SubExperiments=subs))
    assert imported.data["services"] == {"store": {}}
    inline, stored = imported.data["functions"].values()
    assert ("reach" in inline, stored["reach"]) == (False, ["store"])
    document = yamlio.load(yamlio.dump(imported.data), "e.yaml")
    planned = plan(checks.check(document), Sources(document, tmp_path))
    for experiment, hops, by in zip(planned.experiments, (7, 1), ("inline", "store"), strict=True):
        (stream,) = experiment.streams
        assert stream.hops is not None
        assert (stream.hops.kind, stream.hops.hops()) == ("nested", hops)
        sizes = [[it.size for it in stream.hops.payloads(stage)] for stage in stream.hops.stages]
        assert {size for listed in sizes[1:] for size in listed} == {1_048_576}
        assert stream.event["by"] == by
    assert any("the original stores, and never loads" in it for it in imported.warnings)


@pytest.mark.parametrize(
    ("changes", "service", "keys"),
    [
        ({"PackageType": "Container", "FunctionImageSizeMB": 1024}, "registry", {"package"}),
        ({"FunctionImageSizeMB": 230}, "store", {"code"}),
        ({"FunctionImageSizeMB": 10}, None, set()),
    ],
)
def test_packages_come_from_where_the_original_puts_them(
    changes: dict[str, Any], service: str | None, keys: set[str], write: Callable[..., Path]
) -> None:
    path = write(STELLAR, SubExperiments=sub(Function="hellogo", Runtime="go1.x", **changes))
    imported = importers.convert(path)
    read(imported)
    assert imported.data.get("services", {}) == ({service: {}} if service else {})
    (function,) = imported.data["functions"].values()
    assert function.keys() & {"package", "code"} == keys
    assert function["filler"] == f"{changes['FunctionImageSizeMB'] << 20}B"


def test_what_is_not_to_be_had_can_be_skipped(write: Callable[..., Path]) -> None:
    snap = {**STELLAR["SubExperiments"][0], "Title": "snap", "SnapStartEnabled": True}
    path = write(STELLAR, SubExperiments=[*sub(), snap])
    with pytest.raises(UnciaError, match="lacks snapshots") as refused:
        importers.convert(path)
    assert "--skip-unsupported" in str(refused.value.hint)
    imported = importers.convert(path, options=importers.Options(skip=True))
    assert list(imported.data["experiments"]) == ["warm"]
    assert any("left out" in warning for warning in imported.warnings)


def test_chains_of_replicas_back_to_back_can_be_skipped(write: Callable[..., Path]) -> None:
    chain = sub(Title="chain", IATSeconds=0, BurstSizes=[1], DataTransferChainLength=2)
    path = write(STELLAR, SubExperiments=[*sub(), {**chain[0], "Parallelism": 3}])
    with pytest.raises(
        UnciaError, match=r"\[1\]\.Parallelism: Uncia lacks chains back to"
    ) as refused:
        importers.convert(path)
    assert "--skip-unsupported" in str(refused.value.hint)
    imported = importers.convert(path, options=importers.Options(skip=True))
    assert list(imported.data["experiments"]) == ["warm"]
    assert any("the sub-experiment is left out" in warning for warning in imported.warnings)


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        ("1m", "1min"),
        ("1m30s", "90s"),
        (".5s", "500ms"),
        ("1.5h", "90min"),
        ("+5\u03bcs", "5us"),
        ("0", None),
        ("-0ms", None),
    ],
)
def test_service_times_are_durations_as_go_reads_them(
    write: Callable[..., Path], text: str, cpu: str | None
) -> None:
    # What takes no time is another spelling of 0.
    path = write(STELLAR, SubExperiments=sub(DesiredServiceTimes=[text, text]))
    imported = importers.convert(path)
    warm = read(imported).experiments["warm"]
    assert warm.parameters == ({} if cpu is None else {"cpu": cpu})
    assert read(imported).functions[warm.function].source == ("hello" if cpu is None else "spin")


def test_what_is_null_is_left_out_as_go_does(write: Callable[..., Path]) -> None:
    entry = sub(Parallelism=None, FunctionMemoryMB=None, iattype=None, Handler=None)
    imported = importers.convert(write(STELLAR, Function=None, SubExperiments=entry))
    plain = importers.convert(write(STELLAR, SubExperiments=sub()))
    assert imported == plain
    with pytest.raises(UnciaError, match="Sequentail"):
        importers.convert(write(STELLAR, Sequentail=None))


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
