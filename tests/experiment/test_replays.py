"""Replays in experiment files: the workload file's schedule, columns of rows, made functions."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_rows import write_invocations
from run_helpers import Uncia, description, finish, rows

from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.experiment import checks
from uncia.experiment.plan import Plan, StreamPlan
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.units import MIB, NS_PER_S
from uncia.workload import model as workload_model
from uncia.workload.made import Made, demands
from uncia.workload.replay import Replay, expansion
from uncia.workload.resolve import prepare

MS = 1_000_000


def trace(folder: Path, counts: list[tuple[str, int, int]], profiles: list[dict[str, Any]]) -> Path:
    """A trace of counts a minute, with profiles, as an import writes it."""
    folder.mkdir(exist_ok=True)
    functions, minutes, numbers = (list(column) for column in zip(*counts, strict=True))
    table = pa.table({"function": functions, "minute": minutes, "count": numbers})
    record.write(table, folder / "arrivals.parquet", "arrivals")
    if profiles:
        schema = record.schema("profiles")
        filled = [{"basis": "invocations", **row} for row in profiles]
        record.write(
            pa.Table.from_pylist(filled, schema=schema), folder / "profiles.parquet", "profiles"
        )
    return folder


def planned(folder: Path, experiment: dict[str, Any], **file: Any) -> Plan:
    text = yaml.safe_dump(
        {
            "name": "again",
            "seed": 7,
            "platform": {"kind": "embedded"},
            "functions": {
                "spin": {"source": "spin", "memory": "256MB"},
                "hello": {"source": "hello", "memory": "128MB"},
            },
            "experiments": {"only": experiment},
            **file,
        }
    )
    document = yamlio.load(text, "e.yaml")
    return plan(checks.check(document), Sources(document, folder))


def streams(folder: Path, experiment: dict[str, Any], **file: Any) -> list[StreamPlan]:
    return list(planned(folder, experiment, **file).experiments[-1].streams)


def refused(folder: Path, experiment: dict[str, Any], **file: Any) -> str:
    with pytest.raises(UnciaError) as caught:
        planned(folder, experiment, **file)
    return str(caught.value).replace(f"{folder}/", "")


def values(stream: StreamPlan) -> dict[str, list[str]]:
    return {name: field["values"] for name, field in stream.fields.items()}


REPLAYS = st.fixed_dictionaries(
    {},
    optional={
        "speed": st.sampled_from([0.5, 1.0, 3.0]),
        "sample": st.integers(1, 2),
        "window": st.sampled_from([["0s", "2min"], ["1min", "3min"]]),
    },
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(REPLAYS, st.booleans(), st.sampled_from(["spin", {"rule": "hash", "functions": ["spin"]}]))
def test_the_schedule_is_that_of_a_workload_file_with_the_same_keys(
    tmp_path: Path, keys: dict[str, Any], is_counted: bool, to: Any
) -> None:
    if is_counted:
        table: Path = trace(
            tmp_path / "counts", [("a", 1, 5), ("b", 1, 2), ("c", 0, 1), ("c", 1, 3)], []
        )
        keys = {**keys, "placement": "uniform"}
    else:
        table = write_invocations(
            tmp_path / "t.parquet",
            [
                {"function": name, "scheduled": at * NS_PER_S + 1}
                for name, at in [("a", 70), ("b", 61), ("a", 5), ("c", 100), ("c", 61)]
            ],
        )
    replay = {"table": str(table), "map": to, **keys}
    text = {"name": "w", "seed": 7, "functions": {"spin": {"url": "http://127.0.0.1:1/"}}}
    form = workload_model.check(yamlio.load(json.dumps({**text, "replay": replay}), "w.yaml"))
    of_workload = prepare(form, tmp_path, dry_run=True).load.streams
    of_experiment = streams(tmp_path, {"arrivals": {"kind": "replay", **replay}})
    assert [
        (stream.label, stream.arrivals.engine()) for stream in of_workload if stream.arrivals
    ] == [(stream.label, stream.arrivals.engine()) for stream in of_experiment]  # type: ignore[union-attr]


def test_a_function_for_all_and_fields_of_rows(tmp_path: Path) -> None:
    table = write_invocations(
        tmp_path / "t.parquet",
        [
            {"function": "b", "scheduled": 30, "execution": 2_500_000},
            {"function": "a", "scheduled": 20, "execution": 10**9},
            {"function": "b", "scheduled": 10, "execution": 1},
        ],
    )
    experiment = {
        "function": "spin",
        "arrivals": {"kind": "replay", "table": table.name},
        "fields": {"time": {"kind": "column", "column": "execution", "unit": "ms"}},
        "parameters": {"cpu": "{{time}}", "duration": "5ms"},
    }
    a, b = streams(tmp_path, experiment)
    assert (a.alias, b.alias, a.deployment, b.deployment) == ("spin",) * 4
    assert (values(a), values(b)) == ({"time": ["1000"]}, {"time": ["0.000001", "2.5"]})
    assert a.template is not None
    assert json.loads(a.template.replace("{{time}}", "1000")) == {
        "cpu": 1000,
        "duration": 5,
        "memory": 0,
    }
    both = {**experiment, "arrivals": {**experiment["arrivals"], "map": "spin"}}  # type: ignore[dict-item]
    assert "a function for all recorded ones or a map, not both" in refused(tmp_path, both)
    seconds = {"time": {"kind": "column", "column": "execution", "unit": "s"}}
    assert "cpu is in ms, and the field time in s" in refused(
        tmp_path, {**experiment, "fields": seconds}
    )
    assert "fields.time: nothing uses it" in refused(
        tmp_path, {**experiment, "parameters": {"cpu": "1ms"}}
    )
    assert "{{tim}} is no reference" in refused(
        tmp_path, {**experiment, "parameters": {"cpu": "{{tim}}"}}
    )
    warm = {**experiment, "warmup": {"kind": "burst", "sizes": [1]}}
    assert "experiments.only.warmup: requests that carry values of recorded rows" in refused(
        tmp_path, warm
    )
    no_rows = {**experiment, "arrivals": {"kind": "burst", "sizes": [1]}}
    assert "a field of kind column is of the rows of a replay" in refused(tmp_path, no_rows)


def test_requests_of_experiments_have_fields(tmp_path: Path) -> None:
    experiment = {
        "function": "f",
        "arrivals": {"kind": "burst", "sizes": [3]},
        "fields": {
            "n": {"kind": "integer", "min": 1, "max": 9},
            "word": {"kind": "choice", "values": ['say "a"', "b"]},
        },
        "parameters": {
            "count": "{{n}}",
            "text": "{{word}}",
            "both": ["{{n}} of {{word}}"],
            "number": "{{number}}",
            "escaped": "{{{{n",
        },
    }
    web = {"platform": {"kind": "http"}, "functions": {"f": {"url": "http://127.0.0.1:1/"}}}
    (stream,) = streams(tmp_path, experiment, **web)
    assert stream.template is not None
    filled = stream.template
    for name, value in (("n", "7"), ("word", stream.fields["word"]["values"][0]), ("number", "2")):
        filled = filled.replace("{{" + name + "}}", value)
    assert json.loads(filled) == {
        "count": 7,
        "text": 'say "a"',
        "both": ['7 of say "a"'],
        "number": "2",
        # For the engine, which makes two braces of them.
        "escaped": "{{{{n",
    }
    get = {**web, "functions": {"f": {"url": "http://127.0.0.1:1/", "method": "GET"}}}
    assert "GET has no body that a field could be in" in refused(tmp_path, experiment, **get)


def test_made_functions_take_what_their_rows_tell(tmp_path: Path) -> None:
    table = write_invocations(
        tmp_path / "t.parquet",
        [
            {"function": "x/y", "scheduled": 0, "execution": 200 * MS, "memory_peak": 100 * MIB},
            {
                "function": "x/y",
                "scheduled": 1,
                "execution": 90 * NS_PER_S,
                "cpu_user": 3 * MS,
                "cpu_system": MS,
            },
            {
                "function": "z",
                "scheduled": 5,
                "execution": 100 * MS,
                "memory_avg": 50 * MIB,
                "allocated_memory": 1769 * 2 * MIB,
            },
        ],
    )
    made = {"rule": "made", "function": "spin", "longest": "2s", "utilization": 0.5}
    experiment = {"arrivals": {"kind": "replay", "table": table.name, "map": made}}
    result = planned(tmp_path, experiment)
    first, second = result.experiments[-1].streams
    assert (first.alias, second.alias) == ("x/y", "z")
    limits = [result.deployments[s.deployment].function.memory for s in (first, second)]
    assert limits == [164 * MIB, 1769 * 2 * MIB]
    # Half of the CPU that 164 MB come with, where the row does not tell.
    cpu, duration, memory = (values(first)[name] for name in ("cpu", "duration", "memory"))
    assert float(cpu[0]) == pytest.approx(200 * 0.5 * 164 / 1769)
    assert (cpu[1], duration, memory) == ("4", ["200", "2000"], ["100", "0"])
    assert values(second) == {"cpu": ["50"], "duration": ["100"], "memory": ["50"]}
    assert result.warnings == [
        "1 requests of t.parquet took longer than 2s, and are replayed with that"
    ]


def profile(function: str | None, **row: Any) -> dict[str, Any]:
    return {"function": function, "owner": "o", "app": "p", "minute": 0, "minutes": 1440, **row}


PROFILES = [
    profile("f", statistic="quantile", quantile=0.25, duration=10 * MS),
    profile("f", statistic="quantile", quantile=0.75, duration=30 * MS),
    profile("f", statistic="minimum", duration=2 * MS),
    profile("f", statistic="maximum", duration=500 * MS),
    profile("f", statistic="mean", duration=7 * NS_PER_S),
    profile("g", statistic="mean", duration=40 * MS),
    profile(None, statistic="quantile", quantile=0.5, memory=70 * MIB),
    profile(None, statistic="quantile", quantile=1.0, memory=90 * MIB),
    {**profile("g", statistic="mean", duration=NS_PER_S), "minute": 1440},
]


def test_made_functions_draw_from_their_profiles(tmp_path: Path) -> None:
    folder = trace(tmp_path / "trace", [("f", 0, 4000), ("g", 0, 2)], PROFILES)
    replay = Replay(table=folder)
    made = Made(rule="made", function="spin")
    expanded = expansion(replay, 7)
    result = demands(made, replay, expanded, 7, tmp_path)
    durations = result["f"].durations
    assert durations.min() >= 2 * MS
    assert durations.max() <= 500 * MS
    # Of 4000 draws a quarter is below each quartile, within four standard deviations.
    for at, share in [(10 * MS, 0.25), (20 * MS, 0.5), (30 * MS, 0.75)]:
        assert abs((durations <= at).mean() - share) < 4 * (share * (1 - share) / 4000) ** 0.5
    assert result["g"].durations.tolist() == [40 * MS] * 2
    memory = result["f"].memory.to_numpy()
    assert memory.min() == 70 * MIB
    assert memory.max() <= 90 * MIB
    again = demands(made, replay, expanded, 7, tmp_path)["f"]
    assert (again.durations == durations).all()
    other = demands(made, replay, expanded, 8, tmp_path)["f"]
    assert (other.durations != durations).any()
    # The profile of the day in which the replay starts.
    trace(tmp_path / "trace", [("g", 1500, 1)], PROFILES)
    late = expansion(replay, 7)
    assert demands(made, replay, late, 7, tmp_path)["g"].durations.tolist() == [NS_PER_S]


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=6), st.integers(0, 1 << 63))
def test_draws_stay_within_the_profile(quantiles: list[int], seed: int) -> None:
    from uncia.workload.made import _draw, _points

    rows = [
        {"minute": None, "statistic": "quantile", "quantile": number / 10, "duration": value}
        for number, value in enumerate(quantiles)
    ]
    points = _points(rows, "duration", 0)
    assert points is not None
    drawn = _draw(points, 50, seed, "duration/f")
    assert drawn.dtype == np.int64
    assert (min(quantiles) <= drawn).all()
    assert (drawn <= max(quantiles)).all()


def test_what_cannot_be_replayed_is_refused_with_its_place(tmp_path: Path) -> None:
    folder = trace(tmp_path / "trace", [("f", 0, 3), ("g", 0, 2), ("h", 0, 1)], PROFILES)

    def made(function: str = "spin", **keys: Any) -> dict[str, Any]:
        how = {"rule": "made", "function": function, **keys.pop("how", {})}
        return {"arrivals": {"kind": "replay", "table": folder.name, "map": how, **keys}}

    fine = made(how={"duration": "10ms"})
    assert len(streams(tmp_path, fine)) == 3
    lines = {
        "does not tell how long requests of 'h' took": made(),
        "no arrival is left in the minutes 5 to 5": made(window=["5min", "6min"]),
        "the window 5min to 5min is empty": made(window=["5min", "5min"]),
        "only.arrivals.map.function: there is no function 'spine'": made("spine"),
        "hello has none of the parameters cpu, duration, memory": made("hello"),
        "its time limit is 1min": made(how={"duration": "2min"}),
        "map: 'most' is no rule (allowed: popularity, hash, made)": made(how={"rule": "most"}),
        "arrivals.map.functions: needs at least 1": {
            "arrivals": {
                "kind": "replay",
                "table": "t",
                "map": {"rule": "hash", "functions": []},
            }
        },
        "takes 20,": made(how={"duration": "1ms", "headroom": "20GB"}),
    }
    for message, experiment in lines.items():
        output = refused(tmp_path, experiment)
        assert message in output, output
        assert output.startswith("e.yaml:"), output
    few = {"platform": {"kind": "embedded", "max_instances": 2}}
    output = refused(tmp_path, fine, **few)
    assert "the replay makes 3 functions, and the platform holds 2 instances" in output
    given = {**fine, "parameters": {"cpu": "1ms"}}
    assert "parameters.cpu: a made function takes it from the table" in refused(tmp_path, given)


def test_a_trace_is_replayed_billed_and_reported_from_one_file(
    uncia: Uncia, tmp_path: Path
) -> None:
    trace(
        tmp_path / "trace",
        [("one/f", 480, 6), ("g", 500, 3)],
        [
            {**profile("one/f", statistic="mean", duration=30 * MS), "minute": 0},
            {**profile("g", statistic="mean", duration=10 * MS), "minute": 0},
            profile(None, statistic="quantile", quantile=0.5, memory=80 * MIB),
            profile(None, statistic="quantile", quantile=1.0, memory=80 * MIB),
        ],
    )
    file = tmp_path / "hour.yaml"
    file.write_text(
        "name: hour\nseed: 1\nplatform: {kind: embedded}\n"
        "functions: {traced: {source: spin}}\n"
        "experiments:\n  hour:\n    arrivals:\n"
        "      {kind: replay, table: trace, window: [8h, 9h], speed: 3600,\n"
        "       map: {rule: made, function: traced}}\n"
    )
    folder = tmp_path / "run"
    ended = finish(uncia("run", file, "--out", folder))
    assert ended.code == 0, ended.err
    assert "replay of 2 functions of trace, 9 requests, on made functions" in ended.err
    table = rows(folder)
    assert sorted(row["function"] for row in table) == ["g"] * 3 + ["one/f"] * 6
    for row in table:
        wanted = 30 * MS if row["function"] == "one/f" else 10 * MS
        assert row["execution"] >= wanted
        assert row["cpu_user"] + row["cpu_system"] >= wanted * 144 / 1769
        assert row["allocated_memory"] == 144 * MIB
        # What the process has, less what it shares with others, which nobody is charged for.
        assert row["memory_peak"] > 60 * MIB
    bill = record.read(folder, "bill")
    assert bill.num_rows
    assert (folder / "report.html").exists()
    answer = description(folder)["experiments"]["hour"]
    assert [stream["recorded"] for stream in answer["streams"]] == ["g", "one/f"]
    assert answer["functions"] == ["g", "one/f"]


def test_requests_do_what_the_phases_of_their_rows_say(uncia: Uncia, tmp_path: Path) -> None:
    phases = [
        [{"duration": (number + 1) * MS, "threads": number % 3, "memory": 48 * MIB}] * 2
        for number in range(5)
    ]
    write_invocations(
        tmp_path / "t.parquet",
        [
            {"function": "f", "scheduled": number * 10 * MS, "phases": row}
            for number, row in enumerate(phases)
        ],
    )
    file = tmp_path / "phases.yaml"
    file.write_text(
        "name: phases\nplatform: {kind: embedded}\n"
        "functions: {phases: {source: phases, runtime: provided, memory: 128MB}}\n"
        "experiments:\n  only:\n    function: phases\n"
        "    arrivals: {kind: replay, table: t.parquet}\n"
        "    fields: {row: {kind: column, column: phases}}\n"
        '    parameters: {phases: "{{row}}"}\n'
    )
    folder = tmp_path / "run"
    ended = finish(uncia("run", file, "--out", folder))
    assert ended.code == 0, ended.err
    table = sorted(rows(folder), key=lambda row: row["scheduled"])
    for row, asked in zip(table, phases, strict=True):
        assert row["outcome"] == "ok"
        assert row["execution"] >= sum(phase["duration"] for phase in asked)
        used = row["cpu_user"] + row["cpu_system"]
        # The kernel's account of a group may lag by a tick.
        assert used >= sum(it["duration"] * it["threads"] for it in asked) - 4 * MS
        assert row["memory_peak"] >= 40 * MIB
    file.write_text(file.read_text().replace('"{{row}}"', '"of {{row}}"'))
    ended = finish(uncia("run", file, "--out", tmp_path / "no"))
    assert ended.code == 2
    assert "stands alone in a parameter" in ended.err
