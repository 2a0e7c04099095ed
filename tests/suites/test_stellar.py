"""The suite of STeLLAR on made-up tables: the paper's numbers are reproduced, doctored ones not."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from suite_rows import MS, row, write_run

from uncia.paths import data
from uncia.suites import catalogue, perform, results
from uncia.suites.claims import DIFFERS, REPRODUCED, UNCHECKED

ROWS = 400

# Median and 99th percentile in ms, and the share of cold starts: of one cloud, as printed.
FIG3 = {"warm": (44, 74, 0), "cold": (870, 1567, 1)}
FIG8 = {
    "warm": (44, 74, 0),
    "short-100": (88, 546, 0),
    "short-500": (1470, 5700, 0),
    "short-300": (400, 1600, 0),
    "cold": (870, 1567, 1),
    "long-100": (1818, 3095, 1),
    "long-300": (2500, 4200, 1),
    "long-500": (2400, 4000, 1),
}
FIG9 = {
    "never": {"never-1": (1550, 1800, 1), "never-100": (1598, 1865, 1)},
    "queue": {"queue-100": (2978, 4595, 1)},
    "target": {"target-100": (18637, 38545, 1)},
}

Shape = tuple[float, float, float]


def rows(experiment: str, shape: Shape) -> list[dict[str, Any]]:
    """Requests with a median and a 99th percentile: four in a hundred take that long."""
    median, tail, cold = shape
    return [
        row(
            experiment,
            number,
            received=number * 100 * MS
            + round((tail if number % 25 == 7 else median * (0.9 + 0.2 * (number % 11) / 10)) * MS),
            start="cold" if number < cold * ROWS else "warm",
        )
        for number in range(ROWS)
    ]


def verdicts(
    folder: Path, entry: str, runs: Mapping[str, Mapping[str, Shape]]
) -> dict[str, tuple[str, str]]:
    """The verdict on each claim of an entry, with its reason."""
    suite = catalogue.find("stellar")
    for run, shapes in runs.items():
        content = [item for name, shape in shapes.items() for item in rows(name, shape)]
        write_run(folder / entry / run, content)
    perform.State(folder, "stellar").write()
    read = results.read(perform.State.read(folder), suite)
    (of_entry,) = [item for item in read.entries if item.entry.name == entry]
    return {
        finding.id.removeprefix(f"{entry}."): (finding.verdict, finding.why)
        for finding in of_entry.findings
    }


@pytest.mark.parametrize(
    ("entry", "runs", "shown"),
    [
        ("fig3", {"only": FIG3}, ["observation-1-median"]),
        ("fig8", {"only": FIG8}, ["observation-6-aws"]),
        ("fig9", FIG9, []),
    ],
)
def test_what_the_paper_prints_is_reproduced(
    tmp_path: Path, entry: str, runs: Mapping[str, Mapping[str, Shape]], shown: list[str]
) -> None:
    result = verdicts(tmp_path, entry, runs)
    for name, (verdict, why) in result.items():
        if name in shown:
            assert verdict == UNCHECKED
            assert "shown and not judged elsewhere" in why
        else:
            assert (name, verdict) == (name, REPRODUCED), why


@pytest.mark.parametrize(
    ("entry", "run", "experiment", "doctored", "flipped"),
    [
        ("fig3", "only", "warm", (44, 300, 0), {"observation-1-tail", "observation-2-tail"}),
        ("fig3", "only", "cold", (200, 2000, 1), {"observation-2-median", "observation-2-spread"}),
        ("fig3", "only", "cold", (870, 1567, 0.2), {"long-interval"}),
        (
            "fig8",
            "only",
            "short-500",
            (60, 120, 0),
            {"observation-5-median", "observation-5-tail", "observation-5-size"},
        ),
        ("fig8", "only", "short-100", (20, 546, 0), {"observation-5-spread"}),
        ("fig8", "only", "long-500", (500, 900, 1), {"observation-6-median", "observation-6-tail"}),
        (
            "fig9",
            "queue",
            "queue-100",
            (1598, 1865, 1),
            {"observation-7-queue-median", "observation-7-queue-tail"},
        ),
        ("fig9", "target", "target-100", (3000, 4600, 1), {"observation-7-target-tail"}),
    ],
)
def test_a_doctored_table_flips_what_it_is_about(
    tmp_path: Path, entry: str, run: str, experiment: str, doctored: Shape, flipped: set[str]
) -> None:
    whole: dict[str, dict[str, Shape]] = {
        "fig3": {"only": dict(FIG3)},
        "fig8": {"only": dict(FIG8)},
        "fig9": {name: dict(shapes) for name, shapes in FIG9.items()},
    }[entry]
    whole[run][experiment] = doctored
    result = verdicts(tmp_path, entry, whole)
    assert {name for name, (verdict, _) in result.items() if verdict == DIFFERS} == flipped


@pytest.mark.parametrize(("ratio", "verdict"), [(2, REPRODUCED), (4, REPRODUCED), (7, DIFFERS)])
def test_bursts_that_find_instances_take_five_times_as_long_at_most(
    ratio: int, verdict: str, tmp_path: Path
) -> None:
    shapes = {**FIG8, "short-100": (44 * ratio, 546, 0), "bursty-long": (1598, 1865, 1)}
    found, why = verdicts(tmp_path, "table1", {"only": shapes})["bursty-warm-median"]
    assert found == verdict, why


def test_long_intervals_and_what_is_kept_shrink_by_the_factor_that_is_printed() -> None:
    suite = catalogue.find("stellar")
    for entry in suite.entries.values():
        for run in entry.form.runs.values():
            text = (data("experiments") / run.file).read_text(encoding="utf-8")
            if "keep_alive: 4s" not in text:
                continue
            factors = [item.factor for item in entry.form.scale]
            assert factors == ["long intervals and keep-alive by 90"]
            # Functions that are asked for one by one: as many as make the interval of each 10 s.
            for experiment in yaml.safe_load(text)["experiments"].values():
                settings = experiment.get("settings", {})
                if settings.get("replicas") == 150:
                    assert experiment["arrivals"]["rate"] == "15/s"


def test_the_table_is_of_the_requests_of_figure_8() -> None:
    suite = catalogue.find("stellar")
    state = perform.State(Path(), "stellar", quick=True)
    documents = [
        perform.run_document(state, suite.entries[name], "only").data for name in ("fig8", "table1")
    ]
    assert documents[0] == documents[1], "so that they are sent once"
