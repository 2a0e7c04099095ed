"""Files of STeLLAR become Uncia's, and say what the original ignored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from originals import STELLAR, read, sub
from typer.testing import CliRunner

from uncia import yamlio
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.experiment import checks
from uncia.workload import importers


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


@pytest.mark.parametrize(("kind", "kept"), [("stochastic", False), ("deterministic", True)])
def test_turns_of_service_times_are_kept_or_it_is_told(
    kind: str, kept: bool, write: Callable[..., Path]
) -> None:
    changed = sub(IATType=kind, DesiredServiceTimes=["10ms", "20ms"])
    imported = importers.convert(write(STELLAR, SubExperiments=changed))
    (warning,) = (it for it in imported.warnings if ".DesiredServiceTimes: " in it)
    assert ("taken in turn, round by round" in warning) == kept
    assert ("kept on average only" in warning) != kept


def test_keys_in_any_case_as_go_takes_them(write: Callable[..., Path]) -> None:
    lower = {key.lower(): value for key, value in STELLAR["SubExperiments"][0].items()}
    original = {"provider": "aws", "runtime": "python3.9", "subexperiments": [lower]}
    path = write({}, **original)
    assert "warm" in read(importers.convert(path)).experiments


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
