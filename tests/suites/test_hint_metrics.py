"""What hints are worth, of the functions that they are of: others share the machine alone."""

from pathlib import Path
from typing import Any

import pytest
from suite_rows import MS, row, write_run

from uncia.report.data import load
from uncia.stats.comparison import Figure
from uncia.suites import catalogue
from uncia.suites.forms import Subject
from uncia.suites.metrics import metric
from uncia.suites.rows import SubjectRows

S = 1_000 * MS
MEMORY = 1 << 30


def request(function: str, number: int, **more: Any) -> dict[str, Any]:
    return row("perfect", number, **more) | {
        "invocation": f"{function}-{number}",
        "function": function,
        "instance": f"{function}-{number % 10}",
        "allocated_memory": MEMORY,
    }


def instance(function: str, number: int, idle: int, on_hint: int | None) -> dict[str, Any]:
    return {
        "run": "r",
        "platform": "embedded",
        "instance": f"{function}-{number}",
        "function": function,
        "started": 0,
        "allocated_memory": MEMORY,
        "idle": [{"start": 0, "end": idle}],
        "hint_idle": on_hint,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cold = {"start": "cold", "initialization": S}
    rows = [request("a", number, **(cold if number < 10 else {})) for number in range(40)]
    rows += [request("other", number) for number in range(400)]
    instances = [instance("a", number, 2 * S, S) for number in range(10)]
    instances += [instance("other", number, 60 * S, 0) for number in range(10)]
    write_run(tmp_path / "run", rows, instances=instances)
    return tmp_path / "run"


def figure(folder: Path, name: str, form: dict[str, Any]) -> Figure:
    subject = SubjectRows(
        "s", Subject.model_validate({"experiment": "perfect", **form}), load(folder)
    )
    compute = metric(name, name).compute
    assert compute is not None
    return compute(subject, "")


def test_functions_that_only_share_the_machine_are_in_no_figure(folder: Path) -> None:
    form = {"without": ["other"]}
    assert figure(folder, "cold", form).value == 25
    assert figure(folder, "idle", form).value == pytest.approx(20 / 40)
    assert figure(folder, "hint_idle", form).value == pytest.approx(10 / 40)
    assert figure(folder, "kept_idle", form).value == pytest.approx(10 / 40)
    # 30 starts of a second are spared, for 10 s that idle.
    assert figure(folder, "hint_worth", form).value == pytest.approx(3)
    assert figure(folder, "hint_worth", {}).value == pytest.approx(43)


def test_instances_of_which_it_is_not_known_are_in_no_sum(tmp_path: Path) -> None:
    rows = [request("a", number) for number in range(40)]
    unknown = [instance("a", 10, 60 * S, None)]
    known = [instance("a", number, 2 * S, S) for number in range(10)]
    write_run(tmp_path / "hints", rows, instances=known + unknown)
    write_run(tmp_path / "without", rows, instances=unknown)
    values = {
        name: [figure(tmp_path / it, name, {}).value for it in ("hints", "without")]
        for name in ("idle", "hint_idle", "kept_idle")
    }
    # A platform that reads no hints keeps all of it itself.
    assert values["idle"] == pytest.approx([80 / 40, 60 / 40])
    assert values["hint_idle"] == pytest.approx([10 / 40, 0])
    assert values["kept_idle"] == pytest.approx([10 / 40, 60 / 40])


def test_the_suite_judges_hints_by_those_who_give_them() -> None:
    entry = catalogue.find("serverlessbench").entries["hints"]
    comparisons = [comparison for _, comparison in entry.claims.values() if comparison is not None]
    judged = {term.subject for comparison in comparisons for term in comparison.value.terms}
    for name in judged:
        form = entry.subjects[name]
        assert name.startswith("sim@") or form.function == "other" or form.without == ["other"]
    # A percentage of a ratio is a rise: fewer cold starts are a ratio below 1.
    for name in ("implication-vi", "implication-vi-noisy"):
        comparison = entry.claims[f"hints.{name}"][1]
        assert comparison is not None
        assert comparison.bound < 1


def test_cold_starts_are_counted_where_the_start_is_known(tmp_path: Path) -> None:
    rows = [request("a", number, start="cold" if number < 10 else "warm") for number in range(40)]
    rows += [request("a", number, start=None) for number in range(40, 80)]
    write_run(tmp_path / "run", rows)
    assert figure(tmp_path / "run", "cold_rate", {}).value == pytest.approx(10 / 40)
    assert figure(tmp_path / "run", "cold_rate", {}).rows == 40
