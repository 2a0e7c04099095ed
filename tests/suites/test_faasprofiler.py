"""The suite of FaaSProfiler on made-up rows: metrics, power laws, rates scaled to a capacity."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from suite_rows import ENTRY, MS, claim, suite, write_run

from uncia import yamlio
from uncia.errors import RunFailedError, UnciaError
from uncia.experiment.progress import Silent
from uncia.experiment.runner import Outcome
from uncia.report.data import load
from uncia.report.sections import breakdown
from uncia.report.table import Table
from uncia.runs.capacity import FILE, KnownCapacity
from uncia.stats import bootstrap, modes
from uncia.stats.comparison import Figure
from uncia.suites import capacities, catalogue, claims, fits, left_out, perform, results
from uncia.suites.expressions import Term, parse, parse_value
from uncia.suites.forms import Capacity, Subject
from uncia.suites.metrics import gates, metric
from uncia.suites.rows import SubjectRows

RATE, SECONDS = 50, 8


def rows(experiment: str, growth: float, start: str = "warm") -> list[dict[str, Any]]:
    """50 requests a second, whose latency grows by so much a second; each used 3 + 1 ms of CPU."""
    made = []
    for number in range(RATE * SECONDS):
        due = number * 1_000 * MS // RATE
        took = round(20 * MS + growth * due) + number % 5 * 100_000
        made.append(
            {
                "run": "r",
                "experiment": experiment,
                "platform": "embedded",
                "function": "f",
                "invocation": f"r:{experiment}-0-{number}",
                "attempt": 1,
                "outcome": "ok",
                "start": start,
                "instance": "i",
                "open_loop": True,
                "scheduled": due,
                "sent": due,
                "received": due + took,
                "execution": 10 * MS,
                "billed": 10 * MS,
                "queued": MS,
                "allocated_memory": 1 << 30,
                "allocated_cpu": 1_000_000,
                "cpu_user": 3 * MS,
                "cpu_system": MS,
                "page_faults": 8,
                "cycles": 8_000_000,
                "instructions": 10_000_000,
                "branch_misses": 30_000,
            }
        )
    return made


@pytest.fixture
def subjects(tmp_path: Path) -> dict[str, SubjectRows]:
    made = rows("steady", 0.0) + rows("over", 0.5, "thawed")
    write_run(tmp_path / "run", made)
    run = load(tmp_path / "run")
    return {name: SubjectRows(name, Subject(experiment=name), run) for name in ("steady", "over")}


def figure(subject: SubjectRows, name: str, tariff: str = "") -> Figure:
    compute = metric(name, name).compute
    assert compute is not None
    return compute(subject, tariff)


def test_metrics_are_of_what_the_rows_say(subjects: dict[str, SubjectRows]) -> None:
    steady, over = subjects["steady"], subjects["over"]
    assert figure(steady, "due").value == pytest.approx(RATE)
    growth = figure(over, "growth")
    assert growth.value == pytest.approx(50, abs=2)
    assert growth.draws is not None
    assert bootstrap.interval(growth.draws)[0] > 2
    assert abs(figure(steady, "growth").value or 0) < 1
    assert (figure(steady, "waking").value, figure(over, "waking").value) == (0, 100)
    assert figure(steady, "user_mean").value == 3
    assert figure(steady, "system_part").value == pytest.approx(25)
    assert figure(steady, "faults").value == pytest.approx(2)
    assert figure(steady, "switches").value is None, "it was not counted"
    assert figure(steady, "ipc").value == pytest.approx(1.25)
    assert figure(steady, "branch_mpki").value == pytest.approx(3)
    misses = figure(steady, "llc_mpki")
    assert misses.value is None
    assert "a processor that shows its PMU" in misses.why
    cost, revenue = (figure(steady, it, "aws-lambda-x86").value for it in ("cost", "revenue"))
    assert revenue == pytest.approx((cost or 0) * RATE * 3600 / 1e6)


def test_first_starts_do_not_wake(tmp_path: Path) -> None:
    made = rows("a", 0.0)
    for row in made[:50]:
        row["start"] = "cold"
    made[-1]["start"] = "thawed"
    write_run(tmp_path, made)
    run = load(tmp_path)
    waking = figure(SubjectRows("a", Subject(experiment="a"), run), "waking")
    share = modes.of_rows(run.rows_of["a"])
    assert share is not None
    assert share.start_share is not None
    assert waking.value == pytest.approx(100 * share.start_share)
    assert (waking.count, waking.value) == (1, pytest.approx(100 / 350, rel=0.01))


def test_what_paused_instances_take_to_go_on_is_a_part_of_its_own(tmp_path: Path) -> None:
    made = [{**row, "queued": 5 * MS} for row in rows("slow", 0.0, "thawed")]
    spans = [
        {
            "invocation": row["invocation"],
            "name": "thaw",
            "start": row["scheduled"],
            "end": row["scheduled"] + 3 * MS,
            "clock": "platform",
        }
        for row in made
    ]
    write_run(tmp_path / "run", made, spans=spans)
    run = load(tmp_path / "run")
    slow = SubjectRows("slow", Subject(experiment="slow"), run)
    values = {name: figure(slow, name).value for name in ("queued_mean", "queue_mean")}
    assert values == {"queued_mean": 5, "queue_mean": 2}
    # The claim about containers that are un-paused is about those requests.
    entry = catalogue.find("faasprofiler").entries["breakdown"]
    term = parse(entry.form.claims["unpausing"].claim or "").value.first
    assert (term.subject, figure(slow, term.metric.name).value) == ("slow", 3)
    shown = breakdown.section(run, run.invocations).blocks[-1]
    assert isinstance(shown, Table)
    thaw = next(column for column in shown.columns if column.name == "thaw")
    assert callable(thaw.value)
    assert thaw.value(shown.rows[0]) == 3


def test_revenue_is_of_what_is_charged_and_the_rate_of_requests(tmp_path: Path) -> None:
    made = rows("a", 0.0)
    for number, row in enumerate(made[: len(made) // 2]):
        # Half are preempted first, and charged nothing for that.
        made.append({**row, "invocation": f"p-{number}", "outcome": "preempted", "received": None})
    for number, row in enumerate(made[: len(made) // 4]):
        hop = {"open_loop": None, "scheduled": None, "parent": row["invocation"]}
        made.append({**row, "invocation": f"h-{number}", **hop})
    write_run(tmp_path, made)
    subject = SubjectRows("a", Subject(experiment="a"), load(tmp_path))
    assert figure(subject, "due").value == pytest.approx(RATE)
    cost, revenue = (figure(subject, it, "aws-lambda-x86") for it in ("cost", "revenue"))
    charged = sum(it.rows.sum() for it in gates.charged(subject, "aws-lambda-x86").values())
    assert charged > RATE * SECONDS, "hops are charged"
    paid = (cost.value or 0) * charged / 1e6
    assert revenue.value == pytest.approx(paid / SECONDS * 3600)


def test_rows_without_a_price_are_not_free(tmp_path: Path) -> None:
    made = rows("a", 0.0)
    for row in made[::5]:
        row |= {"allocated_memory": None, "billed": None, "execution": None}
    write_run(tmp_path, made)
    subject = SubjectRows("a", Subject(experiment="a"), load(tmp_path))
    revenue = figure(subject, "revenue", "aws-lambda-x86")
    assert (revenue.value, "no price for 80 of 400 rows" in revenue.why) == (None, True)


def two_runs(folder: Path, searched: dict[str, KnownCapacity]) -> dict[str, SubjectRows]:
    """Runs of the same rate, each a share of a capacity that was searched so."""
    subjects = {}
    for name, known in searched.items():
        write_run(folder / name, rows(name, 0.0))
        known.write(folder / name)
        subjects[name] = SubjectRows(name, Subject(experiment=name), load(folder / name))
    return subjects


def judged(claim: str, subjects: dict[str, SubjectRows]) -> tuple[claims.Verdict, str]:
    comparison = parse(claim)
    measured = claims.measure(
        comparison.value, lambda term: figure(subjects[term.subject], term.metric.name, term.tariff)
    )
    return claims.judge(comparison, measured)


def test_a_rate_is_as_sure_as_the_capacity_that_it_is_a_share_of(tmp_path: Path) -> None:
    wide = {name: KnownCapacity(name, 50 / 0.95, 50.0, 55.0, True) for name in ("a", "b")}
    subjects = two_runs(tmp_path / "wide", wide)
    due = figure(subjects["a"], "due")
    assert due.value == pytest.approx(RATE)
    assert due.draws is not None
    low, high = bootstrap.interval(due.draws)
    assert 50 * 0.95 < low < 48
    assert 52 < high < 55 * 0.95
    assert judged("a.due / b.due < 1.05", subjects)[0] == claims.UNCHECKED
    assert judged("a.due / b.due < 1.2", subjects)[0] == claims.REPRODUCED
    revenue = figure(subjects["a"], "revenue", "aws-lambda-x86").draws
    assert revenue is not None
    assert bootstrap.interval(revenue)[1] / bootstrap.interval(revenue)[0] > 1.05
    # Rates of one search move together.
    same = two_runs(tmp_path / "same", dict.fromkeys(("a", "b"), wide["a"]))
    assert judged("a.due / b.due < 1.05", same)[0] == claims.REPRODUCED


def test_a_search_that_was_not_decided_leaves_no_verdict(tmp_path: Path) -> None:
    known = {name: KnownCapacity(name, 52.0, 40.0, 70.0, name == "a") for name in ("a", "b")}
    subjects = two_runs(tmp_path, known)
    for text in ("a.due / b.due < 9", "b.power < a.power", "b.revenue:aws-lambda-x86 > 0 USD"):
        verdict, why = judged(text, subjects)
        assert verdict == claims.UNCHECKED
        assert "the search of the capacity was not decided: 38.46 to 67.31/s" in why
    (tmp_path / "a" / FILE).write_text("{}")
    with pytest.raises(UnciaError, match="is damaged"):
        figure(subjects["a"], "due")


def test_without_what_the_search_came_to_nothing_is_sure(tmp_path: Path) -> None:
    known = {name: KnownCapacity(name, 52.0, 40.0, 70.0, False) for name in ("a", "b")}
    subjects = two_runs(tmp_path, known)
    for name, subject in subjects.items():
        (subject.run.path / FILE).unlink()
        subjects[name] = replace(subject, is_scaled=True)
    verdict, why = judged("a.due / b.due < 1.05", subjects)
    assert verdict == claims.UNCHECKED
    assert f"{FILE} of the capacity that it is a share of is missing in {tmp_path / 'a'}" in why
    # Rates that the file itself has are sure.
    fixed = {name: replace(subject, is_scaled=False) for name, subject in subjects.items()}
    assert judged("a.due / b.due < 1.05", fixed)[0] == claims.REPRODUCED


SCALED = ENTRY.replace(
    "./experiment.yaml,", "./experiment.yaml, capacity: {experiment: slow, at: 9/s},"
)


def test_a_run_without_what_the_search_came_to_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = suite(tmp_path / "suite", {"it": claim("slow.due < 100/s")}, SCALED)
    found = catalogue.find(str(made))
    folder = tmp_path / "out" / "fig1" / "only"
    searched: list[KnownCapacity] = []

    def of_file(*_: Any) -> KnownCapacity:
        searched.append(KnownCapacity("it", 9.0, 8.0, 10.0, True))
        return searched[-1]

    def execute(*_: Any, **__: Any) -> Outcome:
        write_run(folder, rows("slow", 0.0))
        return Outcome("r", folder, {}, [])

    monkeypatch.setattr(capacities, "of_file", of_file)
    monkeypatch.setattr(perform, "_execute", execute)
    state = perform.begin(tmp_path / "out", found.source, quick=False, resume=False)

    def verdict() -> tuple[claims.Verdict, str]:
        (finding,) = results.read(state, found).findings
        return finding.verdict, finding.why

    for _ in range(2):
        assert perform.carry_out(state, list(found.entries.values()), Silent()) is None
        assert verdict()[0] == claims.REPRODUCED
    assert len(searched) == 1, "it was whole"
    (folder / FILE).unlink()
    assert verdict()[0] == claims.UNCHECKED
    assert "make the run again with --resume" in verdict()[1]
    assert perform.carry_out(state, list(found.entries.values()), Silent()) is None
    assert (len(searched), verdict()[0]) == (2, claims.REPRODUCED)


def test_power_falls_where_capacity_gains_less_than_latency(tmp_path: Path) -> None:
    write_run(
        tmp_path, [*rows("small", 0.0), *slower("large", 1.2, 1.5), *slower("good", 1.5, 1.2)]
    )
    data = load(tmp_path)
    made = {it: SubjectRows(it, Subject(experiment=it), data) for it in ("small", "large", "good")}
    assert judged("large.power < small.power", made)[0] == claims.REPRODUCED
    assert judged("good.power < small.power", made)[0] == claims.DIFFERS


def slower(experiment: str, faster: float, longer: float) -> list[dict[str, Any]]:
    """Requests at so many times the rate, whose latency is so many times as long."""
    made = rows(experiment, 0.0)
    for row in made:
        took, due = row["received"] - row["scheduled"], round(row["scheduled"] / faster)
        row |= {"scheduled": due, "sent": due, "received": due + round(took * longer)}
    return made


def test_the_exponent_of_a_power_law_has_an_interval() -> None:
    def figures(term: Term) -> Figure:
        number = int(term.subject.split("-")[1])
        # Slowdown falls with the root of the native time.
        value = float(number) if term.subject.startswith("native") else number * number**-0.5
        draws = value * np.exp(np.random.default_rng(number).normal(0, 0.02, bootstrap.RESAMPLES))
        return Figure(value, draws, 100)

    points = [
        (parse_value(f"native-{n}.p50"), parse_value(f"paused-{n}.p50 / native-{n}.p50"))
        for n in (1, 2, 4, 8, 16, 32, 64)
    ]
    law = fits.exponent("law", points, figures)
    assert law.value == pytest.approx(-0.5)
    assert law.draws is not None
    low, high = bootstrap.interval(law.draws)
    assert -0.6 < low < -0.5 < high < -0.4
    few = fits.exponent("law", points[:4], figures)
    assert (few.value, few.why) == (None, "4 points have both values, of enough rows; 5 are needed")
    same = [(points[0][0], y) for _, y in points]
    assert "do not differ in x" in fits.exponent("law", same, figures).why


def test_rates_are_scaled_to_the_capacity_of_the_functions_that_are_named() -> None:
    data = {
        "experiments": {
            "a": {"function": "f", "arrivals": {"kind": "constant", "rate": "80/s"}},
            "b": {
                "mix": [
                    {"function": "f", "arrivals": {"kind": "poisson", "rate": "50/s"}},
                    {"function": "g", "arrivals": {"kind": "poisson", "rate": "5/s"}},
                ]
            },
        }
    }
    form = Capacity.model_validate({"experiment": "a", "at": "100/s", "functions": ["f"]})
    assert form.at == Fraction(100)
    document = yamlio.Document("x", data, {})
    scaled = capacities.scaled(document, form, 37.5).data["experiments"]
    assert scaled["a"]["arrivals"]["rate"] == "30/s"
    assert [part["arrivals"]["rate"] for part in scaled["b"]["mix"]] == ["18.75/s", "5/s"]
    assert document.data["experiments"]["a"]["arrivals"]["rate"] == "80/s"


def test_a_capacity_that_is_known_is_not_searched_again(tmp_path: Path) -> None:
    path = catalogue.find("faasprofiler").entries["modes"]
    run = path.form.runs["only"]
    document = yamlio.load(catalogue.experiment_file(run.file, path.document))
    assert run.capacity is not None
    with pytest.MonkeyPatch.context() as patch:
        # Which folder it looks into: nothing is searched for that.
        seen: list[Path] = []

        def find(self: Any, *, out: Path, **_: Any) -> None:
            seen.append(out)
            raise RunFailedError("nothing answers")

        patch.setattr(capacities.Finder, "find", find)
        with pytest.raises(UnciaError, match="nothing answers"):
            capacities.of_file(document, run.capacity, tmp_path, tmp_path, Silent())
        (folder,) = seen
        folder.mkdir(parents=True)
        KnownCapacity("the search's run", 60.0, 59.0, 61.0, True).write(folder)
        found = capacities.of_file(document, run.capacity, tmp_path, tmp_path, Silent())
    assert found == KnownCapacity(folder.name, 60.0, 59.0, 61.0, True)


def test_a_run_by_a_framework_that_is_not_installed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    entry = catalogue.find("faasprofiler").entries["container"]
    assert left_out.lacks(entry, "native") == ""
    lacking = left_out.lacks(entry, "frameworks")
    assert "the framework functions-framework-python is not installed" in lacking
    assert "python -m uncia.functions.frameworks functions-framework-python" in lacking


def test_runs_in_docker_are_left_out_where_no_engine_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    entry = catalogue.find("faasprofiler").entries["container"]
    for run in ("docker-live", "docker-paused"):
        assert f"no Docker Engine is at {tmp_path}/none.sock" in left_out.lacks(entry, run)
