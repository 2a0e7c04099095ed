import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import synthetic_run
from page_reader import Page, addresses, marks

from uncia import record
from uncia.errors import UnciaError
from uncia.report import compare, compare_page, costs, run_sets, vega
from uncia.stats.comparison import WHOLE_RUN

Run = Callable[..., tuple[int, str, str]]

FEW = ("-t", "slim", "-t", "aws-lambda-x86")
"""Two tariffs are as good as fourteen, and sooner billed."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs named base, same (other numbers of the same kind), slow, failing and short."""
    folder = tmp_path_factory.mktemp("compare")

    def make(name: str, seed: int, **more: object) -> None:
        rng = np.random.default_rng(seed)
        slow = float(str(more.get("slow", 1.0)))
        outcomes = {"timeout": 40} if more.get("failing") else None
        rows = [
            synthetic_run.experiment("warm", rng, n=400, slow=slow, outcomes=outcomes),
            synthetic_run.experiment("cold", rng, n=400, cold=True, slow=slow),
        ]
        synthetic_run.write(folder / name, rows[: 1 if more.get("short") else 2])

    make("base", 1)
    make("same", 2)
    make("slow", 3, slow=1.5)
    make("failing", 4, failing=True)
    make("short", 5, short=True)
    return folder


def test_a_run_of_the_same_kind_passes_by_its_rows(command: Run, runs: Path) -> None:
    code, out, err = command(
        "compare",
        runs / "base",
        runs / "same",
        *("--fail-on", "p99>50%", "--fail-on", "cost>5%", "--fail-on", "failed>0", "--rows-only"),
    )
    assert (code, err) == (0, "")
    assert "USD per million requests" in out
    assert "All 3 conditions hold." in out
    assert "one run a side; intervals are over rows, not over how runs differ" in out


def test_one_run_a_side_is_not_judged(command: Run, runs: Path) -> None:
    arguments = ("compare", runs / "base", runs / "slow", "--fail-on", "p50>10%", *FEW)
    code, _, err = command(*arguments)
    assert code == 3
    assert "one run a side cannot show how runs differ, 4 can" in err
    assert "p50>10%: slow: warm.p50 not judged: " in err
    assert command(*arguments, "--allow-not-judged")[0] == 0
    assert command(*arguments, "--allow-not-judged", "--rows-only")[0] == 1


def test_a_slower_run_fails_with_the_reason(command: Run, runs: Path) -> None:
    code, out, err = command(
        "compare",
        runs / "base",
        runs / "slow",
        *("--fail-on", "p99>10%", "--fail-on", "cost:aws-lambda-x86>5%", "--fail-on", "failed>0"),
        *FEW,
        "--rows-only",
    )
    assert code == 1
    assert "p99>10%: slow: cold.p99 violated:" in err
    assert "cost:aws-lambda-x86>5%: slow: cost:aws-lambda-x86 violated:" in err
    assert "failed>0" not in err
    assert "violated" in out


def test_any_of_several_candidates_may_fail(command: Run, runs: Path) -> None:
    code, _, err = command(
        "compare",
        runs / "base",
        runs / "same",
        runs / "slow",
        "--fail-on",
        "p50>20%",
        *FEW,
        "--rows-only",
    )
    assert code == 1
    assert "slow: warm.p50" in err
    assert "same:" not in err


def test_new_failures_fail(command: Run, runs: Path) -> None:
    code, _, err = command(
        "compare", runs / "base", runs / "failing", "--fail-on", "failed>1%", *FEW, "--rows-only"
    )
    assert code == 1
    assert "warm.failed violated: 0 → 10 %" in err


def test_a_missing_experiment_never_passes(command: Run, runs: Path) -> None:
    code, out, err = command(
        "compare",
        *(runs / "base", runs / "short", "--fail-on", "p50>50%", *FEW),
        *("--rows-only", "--allow-not-judged"),
    )
    assert code == 3
    assert "cold.p50 cannot be computed" in err
    assert "missing: cold" in out


@pytest.mark.parametrize("gate", ["p98>10%", "p99>10", "p99", "cost:x:y>>3", "p99>-5%"])
def test_a_gate_that_is_wrong_is_bad_input(command: Run, runs: Path, gate: str) -> None:
    code, out, err = command("compare", runs / "base", runs / "same", "--fail-on", gate)
    assert code == 2
    assert out == ""
    assert gate in err


def test_bad_runs_are_bad_input(command: Run, runs: Path, tmp_path: Path) -> None:
    assert command("compare", runs / "base")[0] == 2
    assert command("compare", runs / "base", tmp_path)[0] == 2
    assert command("compare", runs / "base", runs / "nothing")[0] == 2
    assert command("compare", runs / "base", runs / "same", "--tariff", "no-such")[0] == 2
    record.write(record.empty("invocations"), tmp_path / "invocations.parquet")
    code, _, err = command("compare", runs / "base", tmp_path, "--fail-on", "p99>10%")
    assert code == 2
    assert "no invocations" in err


def test_json_holds_everything(command: Run, runs: Path) -> None:
    code, out, _ = command(
        "compare",
        *(runs / "base", runs / "slow", "--json", "--fail-on", "p50>10%", "-t", "slim"),
        "--rows-only",
    )
    result = json.loads(out)
    assert code == 1
    assert result["ok"] is False
    assert {gate["verdict"] for gate in result["gates"]} == {"violated"}
    (candidate,) = result["candidates"]
    changes = {(c["experiment"], c["metric"], c["tariff"]): c for c in candidate["changes"]}
    cold = changes["cold", "p50", None]
    assert cold["change"] == pytest.approx(cold["candidate"] / cold["baseline"])
    assert cold["change_ci95"][0] < cold["change"] < cold["change_ci95"][1]
    assert cold["significant"] is True
    assert changes[None, "cost", "slim"]["unit"] == "USD per million"
    assert {key[2] for key in changes if key[1] == "cost"} == {"slim"}


def test_hops_are_no_requests_of_a_run(tmp_path: Path) -> None:
    rows = synthetic_run.experiment("warm", np.random.default_rng(1), n=40)
    rows.columns["parent"] = [None] * 30 + ["warm-0"] * 10
    rows.columns["open_loop"] = [True] * 30 + [None] * 10
    side = run_sets.find(synthetic_run.write(tmp_path / "r", [rows]))
    made = compare_page.page(compare.build([side, side], ["slim"], 1), [])
    assert made.facts[0][1].endswith("30 requests")


def test_the_page(command: Run, runs: Path, tmp_path: Path) -> None:
    target = tmp_path / "comparison.html"
    code, _, _ = command(
        "compare",
        *(runs / "base", runs / "slow", "--html", target, "--fail-on", "p50>10%", *FEW),
        "--rows-only",
    )
    assert code == 1
    page = Page(target.read_text(encoding="utf-8"))
    assert [name for name in page.sections if name != "warnings"] == [
        "conditions",
        "latency",
        "distributions",
        "ratios",
        "bills",
        "failures",
    ]
    assert "1 condition, 2 verdicts: 2 violated." in page.text
    assert all(link.startswith("#") for link in page.links)
    assert sorted(page.places) == sorted(page.specs)
    for spec in page.specs.values():
        for _, rows in marks(spec):
            assert 0 < len(rows) <= vega.MAX_POINTS
    assert all(addresses(content) == [] for name, content in page.scripts if name != "vega-runtime")
    conditions = page.table_with("condition", "verdict", "reason")
    assert {row["verdict"] for row in conditions} == {"violated"}


def test_costs_are_those_of_the_bill(runs: Path) -> None:
    from uncia import tariffs

    table = record.read(runs / "base")
    result = costs.grouped(table, ["aws-lambda-x86", "slim"])
    assert set(result) == {"warm", "cold"}
    for line in tariffs.bill(table, ["aws-lambda-x86", "slim"], group_by=("experiment",)):
        selected = result[str(line.group["experiment"])][line.tariff]
        assert selected.rows.sum() == line.rows
        assert selected.cost_usd.sum() == pytest.approx(float(line.cost_usd or 0), rel=1e-9)
        assert selected.rows.size == costs.GROUPS


def test_the_cost_of_the_comparison_is_the_cost_of_the_bill(runs: Path) -> None:
    from uncia import tariffs

    comparison = compare.build(sides(runs / "base", runs / "slow"), ["slim"])
    change = comparison.candidates[0].find(WHOLE_RUN, "cost", "slim")
    assert change is not None
    (line,) = tariffs.bill(runs / "slow", ["slim"])
    assert change.candidate.value == pytest.approx(float(line.cost_usd_per_million or 0), rel=1e-9)


def test_runs_of_one_name_are_told_apart(runs: Path) -> None:
    comparison = compare.build(sides(runs / "base", runs / "base"), ["slim"])
    assert comparison.baseline.label == str(runs / "base")
    assert comparison.candidates[0].label == f"{runs / 'base'} (2)"


def sides(*folders: Path) -> list[run_sets.RunSet]:
    return [run_sets.find(folder) for folder in folders]


def test_one_run_is_no_comparison(runs: Path) -> None:
    with pytest.raises(UnciaError, match="at least two"):
        compare.build(sides(runs / "base"))
