"""Unbilled work and what it would have cost, against fractions worked out by hand."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lab_rows import MS, request
from record_rows import table

from uncia import record, yamlio
from uncia.bandwidth import background
from uncia.bandwidth.background import BILLED, COLLECT, CPU_SPAN, SPAN, START
from uncia.errors import UnciaError
from uncia.suites.background import Settings, document
from uncia.suites.study import planned

S = 1000 * MS
AWS = "aws-lambda-x86"
GB_S = Fraction("0.0000166667")
FEE = Fraction("0.0000002")

amounts = st.fractions(min_value=0, max_value=10**6, max_denominator=10**12)


def run(folder: Path, unbilled_ms: list[int]) -> Path:
    """A run with one round of `run` for each; its requests take 10 ms, 5 s lie between."""
    rows: list[dict[str, Any]] = [
        request(900, experiment=BILLED, execution=400 * MS, cpu_user=90 * MS, cpu_system=10 * MS)
    ]
    spans = []
    for number, used in enumerate(unbilled_ms):
        begin = (number + 1) * 100 * S
        start = request(2 * number, experiment="run", stage=START)
        collect = request(
            2 * number + 1, experiment="run", stage=COLLECT, parent=start["invocation"]
        )
        rows += [start, collect]
        for name, end in ((SPAN, begin + 5 * S), (CPU_SPAN, begin + used * MS)):
            span = {"name": name, "start": begin, "end": end, "clock": "function"}
            spans.append({"invocation": collect["invocation"], **span})
    tables: dict[str, pa.Table] = {
        "invocations": table(rows),
        "spans": table(spans, "spans"),
        "instances": table(
            [{"function": "f", "instance": "i1", "started": 0, "idle_cpu": sum(unbilled_ms) * MS}],
            "instances",
        ),
    }
    for name, made in tables.items():
        record.write(made, folder / f"{name}.parquet", name)
    return folder


def test_rounds_as_worked_out_by_hand(tmp_path: Path) -> None:
    result = background.read(run(tmp_path, [300, 500]), [AWS])
    (case,) = result.behaviours
    assert case.name == "run"
    assert case.unbilled_ns == 400 * MS
    assert case.idle_ns == 5 * S
    assert case.vcpu == Fraction(400, 5000)
    assert case.instance_idle_ns == 800 * MS
    assert case.interval is not None
    assert case.interval[0] <= 0.08 <= case.interval[1]
    (price,) = case.prices
    # 400 ms at 128 MB bought 100 ms of CPU time; the work had four times as much.
    size = Fraction(128, 1024)
    assert price.work_usd == size * Fraction(400, 1000) * GB_S * 4 + FEE
    assert price.requests_usd == size * Fraction(20, 1000) * GB_S + 2 * FEE
    assert price.saved == 1 - price.requests_usd / price.work_usd


def test_the_rounds_of_each_behaviour_are_a_chain_on_an_instance_of_its_own() -> None:
    chosen = Settings(["freeze", "run"], 512 << 20, 2 * S, 3, pause_after_ns=MS)
    made, _ = planned(document(chosen))
    first, billed, freeze, run = made.experiments
    assert [experiment.name for experiment in made.experiments] == [
        "first",
        BILLED,
        "freeze",
        "run",
    ]
    # The first experiment starts each instance, which serves one of the others.
    assert [stream.deployment for stream in first.streams] == list(made.deployments)
    assert [stream.deployment for stream in billed.streams] == [first.streams[0].deployment]
    for number, item in enumerate((freeze, run), start=1):
        selected = first.streams[number].deployment
        assert {stream.deployment for stream in item.streams} == {selected}
        assert made.deployments[selected].function.declared() == {"keep_alive_cpu": item.name}
        assert [stream.stage for stream in item.streams] == [START, COLLECT]
        assert item.streams[1].think.min == item.streams[1].think.max == 2 * S
        assert item.expected_requests() == 6
    assert billed.streams[0].event == {"cpu": 200, "wait": 1}
    assert run.streams[1].event["cpu"] == 0


@settings(max_examples=50)
@given(
    resources=amounts,
    cpu=st.integers(1, 10**12),
    work=st.fractions(min_value=0, max_value=10**12, max_denominator=100),
    fee=amounts,
)
def test_work_costs_in_proportion(
    resources: Fraction, cpu: int, work: Fraction, fee: Fraction
) -> None:
    result = background.work_cost(resources, cpu, work, fee)
    assert result - fee == resources * work / cpu
    assert background.work_cost(resources, cpu, Fraction(cpu), fee) == resources + fee
    assert background.work_cost(resources, cpu, Fraction(0), fee) == fee


def test_work_without_a_price_is_refused() -> None:
    with pytest.raises(ValueError, match="use CPU time"):
        background.work_cost(Fraction(1), 0, Fraction(1), Fraction(0))
    with pytest.raises(ValueError, match="took no time"):
        background.vcpu_share([])


def test_rounds_that_broke_off_are_told_and_not_counted(tmp_path: Path) -> None:
    run(tmp_path, [100, 100, 100, 700])
    rows = record.read(tmp_path).to_pylist()
    spans = record.read(tmp_path, "spans").to_pylist()
    rows[1]["outcome"], rows[1]["error"] = "timeout", "late"  # the first round's start
    rows[4]["start"] = "cold"  # the second round's collect
    # Of the third round nothing was collected: what it began was gone.
    kept = [span for span in spans if span["invocation"] != rows[6]["invocation"]]
    record.write(table(rows), tmp_path / "invocations.parquet")
    record.write(table(kept, "spans"), tmp_path / "spans.parquet", "spans")
    result = background.read(tmp_path, [AWS])
    assert [item.unbilled_ns for item in result.behaviours[0].good] == [700 * MS]
    assert len(result.problems) == 3
    expected = ("timeout (late)", "cold start", "was lost")
    for words, problem in zip(expected, result.problems, strict=True):
        assert words in problem


def test_an_interrupted_run_tells_what_it_has_and_names_what_is_missing(tmp_path: Path) -> None:
    run(tmp_path, [300])
    rows = record.read(tmp_path).to_pylist()
    freeze = request(900, experiment="freeze", stage=START)
    record.write(table([*rows, freeze]), tmp_path / "invocations.parquet")
    experiments = {name: {} for name in (BILLED, *background.BEHAVIOURS)}
    (tmp_path / "run.yaml").write_text(yamlio.dump({"file": {"experiments": experiments}}))
    result = background.read(tmp_path, [AWS])
    assert [behaviour.name for behaviour in result.behaviours] == ["run"]
    assert result.behaviours[0].unbilled_ns == 300 * MS
    assert [problem.split(":")[0] for problem in result.problems] == [
        freeze["invocation"],
        "freeze is missing",
        "scale-down is missing",
    ]


def test_a_run_without_a_whole_round_is_refused(tmp_path: Path) -> None:
    run(tmp_path, [300])
    rows = record.read(tmp_path).to_pylist()
    record.write(table(rows[:2]), tmp_path / "invocations.parquet")
    with pytest.raises(UnciaError, match=r"no round is whole: .* nothing collected") as error:
        background.read(tmp_path, [AWS])
    assert error.value.exit_code == 1


def test_a_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    record.write(table([request(1)]), tmp_path / "invocations.parquet")
    with pytest.raises(UnciaError, match="no rows of background work"):
        background.read(tmp_path)


def test_the_result_as_json(tmp_path: Path) -> None:
    data = background.as_data(background.read(run(tmp_path, [100]), [AWS]))
    (result,) = data["behaviours"]
    assert (result["rounds"], result["idle_s"], result["unbilled_cpu_s"]) == (1, 5.0, 0.1)
    assert result["unbilled_vcpu_interval"] is None, "one round has no spread"
    assert result["share_of_allocation"] == pytest.approx(0.02 / 0.072357)
    assert data["memory_mb"] == 128
