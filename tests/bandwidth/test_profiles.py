"""Reading profiles: published forms, their units, what is wrong with a file, and run folders."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from uncia import record
from uncia.bandwidth import profiles
from uncia.cli import build
from uncia.errors import UnciaError

SECOND = 10**9
MS = 10**6


def ns_events(count: int = 30, origin: int = 5_000 * SECOND) -> list[list[int]]:
    ends = [origin + (40 + 50 * i + (i % 2) * 10) * MS for i in range(count)]
    return [[end, 36 * MS + (i % 2) * 20 * MS] for i, end in enumerate(ends)]


def published(unit: int = 1, body: bool = True, **changes: Any) -> dict[str, Any]:
    """An invocation of the probe whose times are in multiples of ``unit`` ns; t0 is in ns."""
    events = ns_events()
    t0 = events[0][0] - events[0][1] - 4 * MS
    span = events[-1][0] - t0
    busy = span - sum(gap for _, gap in events)
    inner: dict[str, Any] = {
        "data": [[time / unit, gap / unit] for time, gap in events] if unit > 1 else events,
        "t0": t0,
        "iteration_counter": busy // 240,
        **changes,
    }
    data = {"body": json.dumps(inner), "statusCode": 200} if body else inner
    return {
        "invocation_timestamp": 1.7e9,
        "duration": span / SECOND + 0.02,
        "status_code": 200,
        "error": None,
        "data": data,
    }


def write(folder: Path, content: Any, name: str = "profile.json") -> Path:
    path = folder / name
    text = content if isinstance(content, str) else json.dumps(content)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def failing(path: Path, **options: Any) -> UnciaError:
    with pytest.raises(UnciaError) as caught:
        profiles.read(path, **options)
    assert str(path) in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("unit", "factor"), [("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9)]
)
@pytest.mark.parametrize("body", [True, False])
@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_every_unit_and_form_gives_the_same_events(
    tmp_path: Path, unit: str, factor: int, body: bool, name: str
) -> None:
    path = write(tmp_path, [published(factor, body), published(factor, body)], name)
    profile = profiles.read(path)
    assert profile.unit == unit
    assert len(profile.runs) == 2
    assert profile.runs[0].events == [tuple(event) for event in ns_events()]
    assert profile.runs[0].start_ns == 5_000 * SECOND
    assert any(f"in {unit}" in note for note in profile.notes)


def test_the_arrays_leave_out_the_first_gap_of_each_run(tmp_path: Path) -> None:
    profile = profiles.read(write(tmp_path, [published(), published()]))
    interval, throttle, cpu = profile.arrays()
    assert len(interval) == 2 * 29 == len(throttle)
    assert set(interval.tolist()) == {40 * MS, 60 * MS}
    assert set(throttle.tolist()) == {36 * MS, 56 * MS}
    assert set(cpu.tolist()) == {4 * MS}
    result = profiles.summary(profile)
    assert result["share"] == pytest.approx(58 * 4 / (30 * 60 + 28 * 40))
    assert result["events"] == 60


@pytest.mark.parametrize("without", [["t0"], ["iteration_counter"], ["t0", "iteration_counter"]])
@pytest.mark.parametrize("factor", [1, 10**6])
def test_less_evidence_suffices(tmp_path: Path, without: list[str], factor: int) -> None:
    nothing: dict[str, Any] = dict.fromkeys(without)
    run = published(factor, **nothing)
    del run["duration"]
    profile = profiles.read(write(tmp_path, [run]))
    assert profile.unit == ("ns" if factor == 1 else "ms")


def test_t0_may_be_in_the_unit_of_the_times(tmp_path: Path) -> None:
    run = published(10**6, t0=5_000_000.0)
    profile = profiles.read(write(tmp_path, [run]))
    assert (profile.unit, profile.runs[0].start_ns) == ("ms", 5_000 * SECOND)


def test_bare_events_of_one_run_are_a_profile(tmp_path: Path) -> None:
    profile = profiles.read(write(tmp_path, ns_events()))
    assert (profile.unit, len(profile.runs), profile.runs[0].start_ns) == ("ns", 1, None)


def test_bare_events_of_several_runs_are_a_profile(tmp_path: Path) -> None:
    later = ns_events(origin=6_000 * SECOND)
    profile = profiles.read(write(tmp_path, [[], ns_events(), later]))
    assert [len(run.events) for run in profile.runs] == [0, 30, 30]


def test_a_mark_of_byte_order_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps([published()]).encode())
    assert profiles.read(path).events == 30


@pytest.mark.parametrize(
    ("factor", "words"), [(10**3, "ms and us"), (10**6, "ms and ns"), (10**9, "s and ns")]
)
def test_gaps_that_do_not_fit_between_their_ends_are_of_another_unit(
    tmp_path: Path, factor: int, words: str
) -> None:
    events = [[time / factor, gap] for time, gap in ns_events()]
    error = failing(write(tmp_path, [published(data=events)]))
    assert f"different units, such as {words}" in error.message


def test_times_that_somebody_moved_are_not_the_kernels(tmp_path: Path) -> None:
    runs = [ns_events(origin=origin * SECOND) for origin in (5_000, 5_011, 5_023)]
    assert profiles.read(write(tmp_path, runs)).monotonic
    by_end = [[[end - run[0][0] + 90 * SECOND, gap] for end, gap in run] for run in runs]
    by_start = [[[end - run[0][0] + run[0][1], gap] for end, gap in run] for run in runs]
    together = [[[end - runs[0][0][0] + SECOND, gap] for end, gap in run] for run in runs]
    for moved in (by_end, by_start, together):
        profile = profiles.read(write(tmp_path, moved))
        assert not profile.monotonic
        assert any("count from the beginning" in note for note in profile.notes)


def test_gaps_and_times_in_different_units_contradict_each_other(tmp_path: Path) -> None:
    events = [[time, gap / MS] for time, gap in ns_events()]
    error = failing(write(tmp_path, [published(data=events)]))
    assert "run 0 contradicts itself" in error.message
    assert "the size of its gaps fits ms" in error.message
    assert "--unit" in str(error.hint)


def test_runs_in_different_units_are_told(tmp_path: Path) -> None:
    error = failing(write(tmp_path, [published(), published(10**6)]))
    assert "run 1 look like ms, those of the runs before it like ns" in error.message


def test_a_duration_in_milliseconds_is_not_believed(tmp_path: Path) -> None:
    run = published()
    run["duration"] *= 1_000
    error = failing(path := write(tmp_path, [run]))
    assert "contradicts itself" in error.message
    profile = profiles.read(path, unit="ns")
    assert profile.unit == "ns"
    assert any("1 runs speak against ns" in note for note in profile.notes)


def test_an_ambiguous_unit_is_not_guessed(tmp_path: Path) -> None:
    # One gap alone: 1,000 of a unit in which the clock says 5,000,000.
    path = write(tmp_path, [{"data": {"data": [[5_000_000, 1_000]]}}])
    error = failing(path)
    assert "may be in us or ms or s" in error.message
    assert "--unit" in str(error.hint)
    assert profiles.read(path, unit="us").runs[0].events == [(5_000_000_000, 1_000_000)]


def test_a_profile_without_a_throttle_is_one(tmp_path: Path) -> None:
    profile = profiles.read(write(tmp_path, [published(data=[], t0=7), published(data=[])]))
    assert profile.unit is None
    assert [run.events for run in profile.runs] == [[], []]
    assert profile.runs[0].start_ns == 7
    assert all(len(array) == 0 for array in profile.arrays())
    assert profile.notes == ["2 of 2 runs saw no throttle"]
    assert profiles.summary(profile)["share"] is None


def test_failed_invocations_are_counted(tmp_path: Path) -> None:
    runs = [
        published(),
        {"status_code": 500, "error": "boom", "data": None},
        {"status_code": 429, "error": None, "data": None},
        {"status_code": 200, "error": None, "data": {"errorMessage": "no memory"}},
        {"status_code": 200, "error": None, "data": {"statusCode": 502, "body": "Bad Gateway"}},
    ]
    profile = profiles.read(write(tmp_path, runs))
    assert len(profile.runs) == 1
    assert "4 of 5 invocations failed" in profile.notes[0]
    assert "run 1: boom" in profile.notes[0]
    error = failing(write(tmp_path, runs[1:]))
    assert "none of the 4 invocations succeeded" in error.message
    assert "boom" in error.message


def changed(index: int, event: Any) -> list[Any]:
    events: list[Any] = list(ns_events())
    events[index] = event
    return events


@pytest.mark.parametrize(
    ("events", "message"),
    [
        (changed(3, ns_events()[1]), "run 1, event 3: its time"),
        (changed(3, [ns_events()[3][0], 90 * MS]), "run 1, event 3: its gap"),
        (changed(4, [-1, 5 * MS]), "event 4: its time is negative"),
        (changed(4, [10**12, -5]), "event 4: its gap is -5"),
        (changed(4, [10**12, 0]), "event 4: its gap is 0"),
        (changed(5, [10**12, float("nan")]), "event 5: its gap is nan"),
        (changed(5, [float("inf"), 1]), "event 5: its time is inf"),
        (changed(6, ["1", 2]), "event 6: its time is text"),
        (changed(6, [True, 2]), "event 6: its time is true or false"),
        (changed(7, [1, 2, 3]), "event 7 is a list of 3"),
        (changed(7, None), "event 7 is null"),
        (changed(7, {"time": 1}), "event 7 is an object"),
    ],
)
def test_a_wrong_event_is_named(tmp_path: Path, events: list[Any], message: str) -> None:
    error = failing(write(tmp_path, [published(), published(data=events)]))
    assert "run 1" in error.message
    assert message in error.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("[]", "holds no invocation"),
        ("7", "holds a number"),
        ('"text"', "holds text"),
        ("{]", "is not JSON"),
        ('[{"data": {"data": [[1, 2], [3', "is cut off"),
        ('[{"data": {"data": [[1, 2], [3.', "is cut off"),
        ('[{"data": {"data": [[1, 2], nul', "is cut off"),
        ('[{"data": {"body": "{\\"da', "is cut off"),
        ("[" * 100_000, "nested too deeply"),
        ([3], "run 0 is a number"),
        ([{"a": 1}], "run 0 has no `data`"),
        ([{"data": {"data": 5}}], "run 0: its data is a number"),
        ([{"data": {"data": None}}], "run 0: its data is null"),
        ([{"data": {"body": '{"data": [[1, 2'}}], "run 0: its body is not JSON, or cut off"),
        ([{"data": {"body": '"\\"x\\""'}}], "run 0: its body is text within text"),
        ([{"data": {"data": [[1, 2]], "t0": "now"}}], "run 0: its t0 is text"),
        ([{"duration": -1, "data": {"data": [[1, 2]]}}], "run 0: duration is negative"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, content: Any, message: str) -> None:
    assert message in failing(write(tmp_path, content)).message


def test_files_that_are_no_text_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    assert "does not exist" in failing(path).message
    whole = gzip.compress(json.dumps([published()]).encode())
    path.write_bytes(whole[: len(whole) // 2])
    assert "is cut off" in failing(path).message
    path.write_bytes(whole[:30] + b"\xff" * 30 + whole[60:])
    assert "is damaged" in failing(path).message
    path.write_bytes(b"\x1f\x8b")
    assert "is cut off" in failing(path).message
    path.write_bytes(b"\xff\xfe\x00")
    assert "is no text" in failing(path).message


def test_a_gzipped_file_needs_no_suffix(tmp_path: Path) -> None:
    path = tmp_path / "profile"
    path.write_bytes(gzip.compress(json.dumps([published()]).encode()))
    assert profiles.read(path).events == 30


def row(invocation: str, outcome: str = "ok", **more: Any) -> dict[str, Any]:
    error = None if outcome == "ok" else "it broke"
    return {
        "function": "throttle",
        "invocation": invocation,
        "attempt": 1,
        "outcome": outcome,
        "error": error,
        "started": 1_000,
        "execution": SECOND,
        **more,
    }


def span(invocation: str, name: str, start: int, end: int) -> dict[str, Any]:
    clock = "function"
    return {"invocation": invocation, "name": name, "start": start, "end": end, "clock": clock}


def run_folder(folder: Path, rows: list[dict[str, Any]], spans: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    for table, content in (("invocations", rows), ("spans", spans)):
        schema = record.schema(table)
        data = pa.Table.from_pylist(
            [{name: of.get(name) for name in schema.names} for of in content], schema=schema
        )
        record.write(data, folder / f"{table}.parquet", table)
    return folder


def test_a_run_folder_is_a_profile(tmp_path: Path) -> None:
    rows = [row("a"), row("b"), row("c", "timeout"), row("d")]
    spans = [
        span("b", "probe", 5_000, 5_000 + SECOND),
        span("a", "throttle", 90 * MS, 100 * MS),
        span("a", "throttle", 30 * MS, 40 * MS),
        span("a", "probe", 2_000, 2_000 + SECOND),
        span("a", "handler", 1_000, 3_000 + SECOND),
    ]
    profile = profiles.read(run_folder(tmp_path / "run", rows, spans))
    assert [run.events for run in profile.runs] == [
        [(40 * MS, 10 * MS), (100 * MS, 10 * MS)],
        [],
    ]
    assert [(run.start_ns, run.duration_ns) for run in profile.runs] == [
        (2_000, SECOND),
        (5_000, SECOND),
    ]
    assert (profile.unit, profile.name) == ("ns", None)
    assert "1 of 4 invocations failed" in profile.notes[0]
    assert "it broke" in profile.notes[0]
    assert "1 invocations are left out, for the probe did not run in them" in profile.notes
    with pytest.raises(UnciaError, match="in ns, not ms"):
        profiles.read(tmp_path / "run", unit="ms")


@pytest.mark.parametrize(("counts", "sum_"), [((0, 0), 0), ((3, 4), 7), ((0, None), None)])
def test_what_the_kernel_counted_is_kept(
    tmp_path: Path, counts: tuple[int | None, ...], sum_: int | None
) -> None:
    rows = [row(f"i{index}", throttled_count=count) for index, count in enumerate(counts)]
    spans = [span(item["invocation"], "probe", 1_000, SECOND) for item in rows]
    assert profiles.read(run_folder(tmp_path / "run", rows, spans)).kernel_throttled == sum_


def test_gaps_where_the_kernel_counted_no_throttle_tell_nothing(tmp_path: Path) -> None:
    events = ns_events(origin=SECOND)
    spans = [span("i", "throttle", end - gap, end) for end, gap in events]
    spans.append(span("i", "probe", SECOND, 5 * SECOND))
    for count, period in ((0, None), (30, "known")):
        folder = run_folder(tmp_path / f"run-{count}", [row("i", throttled_count=count)], spans)
        done = CliRunner().invoke(build(), ["cpu", "infer", str(folder), "--json"])
        result = json.loads(done.stdout)
        assert (result["period_us"] is None) is (period is None)
        assert any("30 gaps have other causes" in note for note in result["notes"]) is (count == 0)


def test_a_profile_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    content = io.BytesIO(gzip.compress(json.dumps([published()]).encode()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(content))
    assert profiles.read("-").events == 30


def test_simulated_runs_have_throttles_alone(tmp_path: Path) -> None:
    spans = [span("a", "throttle", 30 * MS, 40 * MS)]
    profile = profiles.read(run_folder(tmp_path / "run", [row("a"), row("b")], spans))
    assert [len(run.events) for run in profile.runs] == [1, 0]
    assert (profile.runs[1].start_ns, profile.runs[1].duration_ns) == (1_000, SECOND)


def test_a_run_of_several_sizes_holds_several_profiles(tmp_path: Path) -> None:
    sizes = {"a": 128, "b": 256}
    rows = [row(name, allocated_memory=mb * 2**20) for name, mb in sizes.items()]
    spans = [span(name, "probe", 0, SECOND) for name in sizes]
    folder = run_folder(tmp_path / "run", rows, spans)
    assert [profile.name for profile in profiles.read_all(folder)] == ["128MB", "256MB"]
    error = failing(folder)
    assert "holds 2 profiles" in error.message
    assert "run:128MB" in str(error.hint)
    assert profiles.read(folder, name="256MB").name == "256MB"
    assert profiles.read(f"{folder}:128MB").name == "128MB"
    assert "no profile '64MB'" in failing(folder, name="64MB").message


def test_run_folders_that_hold_no_profile(tmp_path: Path) -> None:
    plain = run_folder(tmp_path / "plain", [row("a")], [span("a", "handler", 0, 5)])
    assert "holds no profile" in failing(plain).message
    failed = run_folder(
        tmp_path / "failed", [row("a", "timeout")], [span("a", "throttle", 0, 5 * MS)]
    )
    assert "no invocation of the probe succeeded" in failing(failed).message
    twisted = run_folder(tmp_path / "twisted", [row("a")], [span("a", "throttle", 9, 5)])
    assert "not after its start" in failing(twisted).message
    spans = [span("a", "throttle", 0, 5 * MS), span("a", "throttle", 4 * MS, 9 * MS)]
    assert "overlap" in failing(run_folder(tmp_path / "overlap", [row("a")], spans)).message
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "no table" in failing(empty).message


@pytest.mark.parametrize("digits", [25, 400, 5000])
@pytest.mark.parametrize("body", [False, True])
def test_integers_beyond_every_clock_are_no_times(tmp_path: Path, digits: int, body: bool) -> None:
    events = f'{{"data": [[1, {"9" * digits}]]}}'
    inner = json.dumps(events) if body else events
    file = tmp_path / "profile.json"
    file.write_text(f'[{{"data": {{"body": {inner}}}}}]' if body else f'[{{"data": {events}}}]')
    with pytest.raises(UnciaError, match=r"run 0, event 0: its gap is .*, which is no time"):
        profiles.read(file)
