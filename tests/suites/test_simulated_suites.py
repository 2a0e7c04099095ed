"""Suites whose runs are simulations: claims over seeds, of made-up results and of a small run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from suite_rows import HEADER, claim

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import progress
from uncia.suites import catalogue, page, perform, results, simulated
from uncia.suites.claims import DIFFERS, REPRODUCED, UNCHECKED
from uncia.suites.metrics import all_metrics
from uncia.suites.results import Results
from uncia.suites.seeds import over_seeds

FILE: dict[str, Any] = {
    "name": "small",
    "seed": 1,
    "repeat": 4,
    "cluster": {"workers": 1, "vcpu": 4, "memory": "1GB"},
    "models": ["slim", "npfu"],
    "functions": {
        "api": {
            "vcpu": 2,
            "memory": "64MB",
            "arrivals": {"kind": "poisson", "rate": "20/s", "duration": "5s"},
            "phases": [
                {"drawn": {"distribution": "exponential", "mean": "30ms"}, "memory": "32MB"}
            ],
        },
        "job": {
            "vcpu": 2,
            "memory": "64MB",
            "spot_vcpu": 2,
            "preemptible": True,
            "qos": "batch",
            "arrivals": {"kind": "poisson", "rate": "20/s", "duration": "5s"},
            "phases": [{"duration": "50ms", "memory": "32MB"}],
        },
    },
}
SWEEP = {"prices.spot": [0.2, 0.8]}

ENTRY: dict[str, Any] = {
    "shows": "Figure 7",
    "title": "throughput",
    "section": "5",
    "description": "Two models.",
    "runs": {"models": {"file": "./experiments/small.yaml", "quick": {"share": 0.1}}},
    "figures": [
        {
            "name": "throughput",
            "title": "Throughput",
            "x": {"title": " "},
            "y": {"title": "a second"},
            "series": [
                {
                    "name": "ours",
                    "x": ["SLIM", "NPFU"],
                    "subjects": ["slim", "npfu"],
                    "y": "*.throughput",
                }
            ],
        }
    ],
}
CLAIMS = {
    "more": claim("npfu.throughput > slim.throughput"),
    "much-more": claim("npfu.throughput / slim.throughput > 1.6"),
    "used": claim("npfu.cpu_used > 80%"),
    "cost": claim("npfu.batch_cost < 41%"),
}


def write(folder: Path, file: dict[str, Any], entry: dict[str, Any]) -> Path:
    """A suite with one entry."""
    (folder / "experiments").mkdir(parents=True, exist_ok=True)
    (folder / "experiments" / "small.yaml").write_text(yaml.safe_dump(file))
    (folder / "suite.yaml").write_text(HEADER)
    (folder / "fig7.yaml").write_text(yaml.safe_dump(entry))
    return folder


def made_up(
    tmp_path: Path,
    npfu: list[float],
    *,
    cost: float | list[float] = 30,
    used: float = 0.9,
    served: int = 95,
) -> Results:
    """Results as if SLIM had served 10, 100, 1000 and 1 a second, and NPFU so many times that."""
    folder = write(tmp_path / "suite", FILE, ENTRY | {"claims": CLAIMS})
    out = tmp_path / "out"
    run = out / "fig7" / "models"
    run.mkdir(parents=True)
    content = {}
    for number, (slim, times) in enumerate(zip([10, 100, 1000, 1], npfu, strict=True), 1):
        of_npfu = cost[number - 1] if isinstance(cost, list) else cost
        for model, rate, price in (("slim", slim, 100.0), ("npfu", slim * times, of_npfu)):
            content[f"{model}-{number}"] = {
                "arrived": 100,
                "served": served,
                "throughput_in_window_per_s": rate,
                "cpu_utilization": used + number / 1000,
                "qos": {"batch": {"cost_usd_per_million_at_equal_revenue": price}},
            }
    (run / "simulation.json").write_text(json.dumps(content))
    (run / "run.yaml").write_text(yaml.safe_dump({"status": "complete"}))
    suite = catalogue.find(str(folder))
    perform.State(out, suite.source).write()
    return results.read(perform.State.read(out), suite)


def verdicts(read: Results) -> dict[str, str]:
    return {finding.id.removeprefix("fig7."): finding.verdict for finding in read.findings}


def test_verdicts_follow_the_values_of_the_seeds(tmp_path: Path) -> None:
    read = made_up(tmp_path, [1.9, 2.0, 2.1, 2.0])
    assert set(verdicts(read).values()) == {REPRODUCED}
    finding = read.findings[1]
    # The geometric mean of pairs: seeds differ a thousandfold, their ratios do not.
    assert finding.ours == pytest.approx(1.9987, abs=1e-3)
    assert finding.interval is not None
    low, high = finding.interval
    assert 1.85 < low < 1.99 < high < 2.15
    assert "Throughput" in json.dumps([str(section) for section in page.page(read).sections])


def test_other_values_turn_the_verdicts(tmp_path: Path) -> None:
    read = made_up(tmp_path, [0.7, 0.8, 0.75, 0.7], cost=90, used=0.3)
    assert set(verdicts(read).values()) == {DIFFERS}


def test_ratios_have_geometric_means_and_parts_of_a_whole_arithmetic_ones(tmp_path: Path) -> None:
    read = made_up(tmp_path, [1.0] * 4, cost=[10.0, 40.0, 10.0, 40.0])
    (entry,) = read.entries
    assert entry.measure("npfu.batch_cost").value == pytest.approx(20)
    assert entry.measure("npfu.cpu_used").value == pytest.approx(90.25)
    by_name = all_metrics()
    assert not by_name["halved"].is_geometric
    assert by_name["cost_p50"].is_geometric


def test_of_simulations_that_lost_many_requests_only_what_counts_all_is_judged(
    tmp_path: Path,
) -> None:
    read = made_up(tmp_path, [2.0, 2.1, 1.9, 2.0], served=80)
    assert verdicts(read) == {
        "more": REPRODUCED,
        "much-more": REPRODUCED,
        "used": REPRODUCED,
        "cost": UNCHECKED,
    }
    (why,) = [item.why for item in read.findings if item.id.endswith(".cost")]
    assert "80 of 400 requests of npfu were lost, rejected or unfinished" in why


def test_seeds_that_disagree_leave_it_open(tmp_path: Path) -> None:
    judged = verdicts(made_up(tmp_path, [0.4, 4.0, 0.5, 5.0]))
    assert judged["more"] == judged["much-more"] == UNCHECKED
    assert judged["cost"] == REPRODUCED


def test_seeds_without_a_value_are_none() -> None:
    assert over_seeds([1.0, None, 2.0]).why == "1 of 3 seeds have no value"
    assert "no geometric mean" in over_seeds([1.0, 0.0, 2.0], geometric=True).why
    assert over_seeds([1.0, 2.0]).few


@pytest.mark.usefixtures("engine_binary")
def test_a_small_suite_is_simulated_and_gone_on_with(tmp_path: Path) -> None:
    entry = ENTRY | {
        "figures": [],
        "claims": {
            "cheaper": claim("npfu@spot=0.2.batch_cost - npfu@spot=0.8.batch_cost < 0%"),
            "unlike": claim("npfu@spot=0.2.halved > 101%"),
            "free": claim("npfu@spot=0.2.batch_part_by_limits < 0.001%"),
        },
    }
    folder = write(tmp_path / "suite", FILE | {"sweep": SWEEP}, entry)
    suite = catalogue.find(str(folder))
    assert suite.entries["fig7"].experiments["models"] == (
        "slim@spot=0.2",
        "npfu@spot=0.2",
        "slim@spot=0.8",
        "npfu@spot=0.8",
    )
    state = perform.begin(tmp_path / "out", suite.source, quick=True, resume=False)
    reporter = progress.reporter(quiet=True)
    assert perform.carry_out(state, list(suite.entries.values()), reporter) is None
    read = results.read(state, suite)
    assert read.failures == []
    assert verdicts(read) == {"cheaper": REPRODUCED, "unlike": DIFFERS, "free": REPRODUCED}
    made = tmp_path / "out" / "fig7" / "models" / "point-00000" / "simulation.json"
    assert len(json.loads(made.read_text())) == 2 * 3, "--quick leaves three seeds"
    # What is whole stays; of another file it says nothing.
    before = made.stat().st_mtime_ns
    assert perform.carry_out(state, list(suite.entries.values()), reporter) is None
    assert made.stat().st_mtime_ns == before
    write(tmp_path / "suite", FILE | {"sweep": SWEEP, "seed": 9}, entry)
    changed = results.read(perform.State.read(tmp_path / "out"), catalogue.find(str(folder)))
    assert set(verdicts(changed).values()) == {UNCHECKED}
    reporter.close()


def write_twice(folder: Path, file: dict[str, Any], entry: dict[str, Any]) -> Path:
    """A suite with two entries of the same file."""
    mine = write(folder / "suite", file, entry)
    (mine / "fig8.yaml").write_text((mine / "fig7.yaml").read_text())
    return mine


@pytest.mark.usefixtures("engine_binary")
def test_entries_with_the_same_file_share_a_run(tmp_path: Path) -> None:
    entry = ENTRY | {"figures": []}
    small = FILE | {"repeat": 1, "models": ["slim"]}
    out, reporter = tmp_path / "out", progress.reporter(quiet=True)

    def carry_out(file: dict[str, Any]) -> None:
        suite = catalogue.find(str(write_twice(tmp_path, file, entry)))
        state = perform.begin(out, suite.source, quick=False, resume=True)
        assert perform.carry_out(state, list(suite.entries.values()), reporter) is None
        for item in results.read(perform.State.read(out), suite).entries:
            assert [run.status for run in item.runs] == ["whole"]

    first, second = out / "fig7" / "models", out / "fig8" / "models"
    # An entry by itself takes what is whole of the others.
    suite = catalogue.find(str(write_twice(tmp_path, small | {"seed": 1}, entry)))
    state = perform.begin(out, suite.source, quick=False, resume=True)
    fig7, fig8 = suite.entries["fig7"], suite.entries["fig8"]
    assert perform.carry_out(state, [fig7], reporter, [fig8]) is None
    before = (first / "run.yaml").stat().st_mtime_ns
    assert perform.carry_out(state, [fig8], reporter, [fig7]) is None
    assert second.resolve() == first.resolve()
    assert (first / "run.yaml").stat().st_mtime_ns == before
    for seed in (1, 2):
        carry_out(small | {"seed": seed})
        assert second.is_symlink()
        assert second.resolve() == first.resolve()
        assert f"seed: {seed}" in (second / "run.yaml").read_text()
    # Once their files differ, each has a run of its own, and neither is lost.
    folder = tmp_path / "suite"
    (folder / "experiments" / "other.yaml").write_text(yaml.safe_dump(small | {"seed": 3}))
    text = (folder / "fig8.yaml").read_text()
    (folder / "fig8.yaml").write_text(text.replace("small.yaml", "other.yaml"))
    suite = catalogue.find(str(folder))
    state = perform.begin(out, suite.source, quick=False, resume=True)
    assert perform.carry_out(state, list(suite.entries.values()), reporter) is None
    assert not second.is_symlink()
    assert "seed: 2" in (first / "run.yaml").read_text()
    assert "seed: 3" in (second / "run.yaml").read_text()
    reporter.close()


@pytest.mark.usefixtures("engine_binary")
def test_changed_files_are_made_again_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = ENTRY | {"figures": []}
    small = FILE | {"repeat": 1, "models": ["slim"]}
    out = tmp_path / "out"
    reporter = progress.reporter(quiet=True)

    def carry_out(file: dict[str, Any]) -> tuple[int | None, perform.RunState]:
        suite = catalogue.find(str(write(tmp_path / "suite", file, entry)))
        state = perform.begin(out, suite.source, quick=False, resume=True)
        code = perform.carry_out(state, list(suite.entries.values()), reporter)
        (item,) = results.read(perform.State.read(out), suite).entries
        return code, item.runs[0]

    # A run, a sweep, one with fewer points, one over another parameter, and a run again.
    for file, there in (
        (small, {"run.yaml"}),
        (small | {"sweep": SWEEP}, {"grid.json", "point-00000", "point-00001"}),
        (small | {"sweep": {"prices.spot": [0.2]}}, {"grid.json", "point-00000"}),
        (small | {"sweep": {"seed": [1]}}, {"grid.json", "point-00000"}),
        (small, {"run.yaml"}),
    ):
        code, run = carry_out(file)
        assert (code, run.status, run.reason) == (None, "whole", "")
        names = {path.name for path in run.folder.iterdir()}
        assert {name for name in names if name in ("run.yaml", "grid.json") or "point" in name} == (
            there
        )

    # What is whole is of the file before, if the next one was interrupted.
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(simulated, "execute", interrupt)
        code, run = carry_out(small | {"seed": 2})
    assert (code, run.status) == (130, "failed")
    assert (run.folder / "simulation.json").exists()
    assert carry_out(small | {"seed": 2})[1].status == "whole"
    assert "slim" in json.loads((run.folder / "simulation.json").read_text())
    assert "seed: 2" in (run.folder / "run.yaml").read_text()
    reporter.close()


@pytest.mark.parametrize("text", ["", "7", "{status: ", "status: complete"])
def test_a_sweep_takes_the_place_of_a_run_whatever_its_description_is(
    tmp_path: Path, text: str
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.yaml").write_text(text)
    swept = yamlio.load(yamlio.dump(FILE | {"sweep": SWEEP}), "file.yaml")
    assert simulated.has_sweep(swept)
    simulated.make_way(swept, folder)
    assert not folder.exists()


def test_a_sweep_is_refused_by_a_history_before_anything_runs(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    folder = write(tmp_path / "suite", FILE | {"sweep": SWEEP}, ENTRY | {"figures": []})
    history = tmp_path / "history"
    code, _, message = command("suite", "repeat", str(folder), "--once", "--history", str(history))
    assert code != 0
    assert "simulations with a sweep: fig7" in message
    assert not history.exists()


def test_metrics_of_rows_and_of_simulations_are_told_apart(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", FILE, ENTRY | {"claims": {"it": claim("slim.p50 < 1s")}})
    with pytest.raises(UnciaError, match="p50 is a metric of rows of a platform"):
        catalogue.find(str(folder))
    folder = write(tmp_path / "b", FILE, ENTRY | {"claims": {"it": claim("sim.throughput > 1rps")}})
    with pytest.raises(UnciaError, match="no experiment or subject 'sim'"):
        catalogue.find(str(folder))


def test_a_shorter_sweep_has_the_points_that_are_named() -> None:
    document = yamlio.load(yamlio.dump(FILE | {"sweep": SWEEP}), "small.yaml")
    shorter = document.with_data(simulated.shorten(document, ["npfu@*=0.8"], 0.5))
    assert simulated.experiments(shorter) == ("slim@spot=0.8", "npfu@spot=0.8")
    assert shorter.data["repeat"] == 3
    with pytest.raises(UnciaError, match="no experiment is called npfu"):
        simulated.shorten(document, ["npfu@*=0.7"], 1)
