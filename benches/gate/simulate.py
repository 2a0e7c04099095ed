"""Simulates gates with runs drawn from recorded ones, and counts their verdicts.

    python benches/gate/simulate.py [--gates 2000] [--runs benches/gate/runs.parquet]

A simulated run is a recorded one whose rows are drawn anew, with replacement. Both sides draw from
the same recorded runs, so that the code is identical; a planted change multiplies latencies and
costs, or turns successes into failures, of one side. Three sources of runs:

* ``recorded``: any recorded run, each as likely.
* ``in time``: runs as they followed one another, from a random one on, with ABBA order.
* ``2 %``, ``5 %``, ``10 %``: the recorded run that others disturbed least, times a factor of that
  spread for each run: a machine that is quieter than the one that was recorded on.
"""

import argparse
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from uncia.experiment.repeat import order
from uncia.stats import bootstrap, comparison, gates, repeats, verdicts
from uncia.stats.comparison import SHARES, Figure, Figures, GroupedCost, Measured

HERE = Path(__file__).parent
VERSIONS = 6
"""Draws of the rows of each recorded run."""

DRAWS = 400
"""Of a figure's 4,000 resamples, those that are kept: only their variance matters."""

GROUPS = 30
"""Of a run's rows, for their costs."""

CONDITIONS = (
    "warm.p50",
    "spin.p50",
    "starts.p50",
    "warm.p99",
    "spin.cost:aws-lambda-x86",
    "spin.cost:spfu",
)
SHARE_CONDITIONS = ("throttled.failed", "starts.cold")
SPREADS = (0.02, 0.05, 0.10)

Draw = Callable[[int], tuple[list[Figures], list[Figures]]]


def load(path: Path, rng: np.random.Generator) -> tuple[list[list[Figures]], int]:
    """The figures of each recorded run, in several draws of its rows; the calmest run's index."""
    table = pq.read_table(path)
    result = []
    for run in sorted(set(table["run"].to_pylist())):
        rows = table.filter(pc.equal(table["run"], run))
        parts = {
            name: rows.filter(pc.equal(rows["experiment"], name))
            for name in rows["experiment"].unique().to_pylist()
        }
        arrays = {
            name: {column: part[column].to_numpy() for column in part.column_names}
            for name, part in parts.items()
        }
        versions = []
        for version in range(VERSIONS):
            measured = {name: _measured(columns, rng) for name, columns in arrays.items()}
            figures = comparison.figures(measured, f"{run} {version}")
            versions.append({key: _thin(figure) for key, figure in figures.items()})
        result.append(versions)
    noise = table.group_by("run", use_threads=False).aggregate([("background_percent", "min")])
    return result, int(np.argmin(noise["background_percent_min"].to_numpy()))


def _measured(columns: dict[str, np.ndarray], rng: np.random.Generator) -> Measured:
    n = columns["ok"].size
    picks = rng.integers(0, n, n)
    drawn = {name: values[picks] for name, values in columns.items()}
    latency = drawn["latency_us"][drawn["ok"].astype(bool)]
    costs = {}
    for name, values in drawn.items():
        if name.startswith("usd_"):
            priced = values[np.isfinite(values)].astype(np.float64)
            groups = [part for part in np.array_split(priced, GROUPS) if part.size]
            costs[name[4:]] = GroupedCost(
                np.array([part.sum() for part in groups]),
                np.array([part.size for part in groups], np.int64),
            )
    starts = int(drawn["cold"].sum())
    summary = {
        "invocations": n,
        "failed": int(n - drawn["ok"].sum()),
        "cold": starts,
        "starts": {"cold": starts, "warm": n - starts},
        "wait_ms": 0.0,
        "base": None,
    }
    ordered = np.sort(latency.astype(np.int64) * 1000)
    return Measured(summary, ordered, np.zeros(0, np.int64), costs)


def _thin(figure: Figure) -> Figure:
    if figure.draws is None:
        return figure
    return dataclasses.replace(figure, draws=figure.draws[:DRAWS].astype(np.float32))


def slower(figures: Figures, factor: float) -> Figures:
    """A run as if everything took, and cost, ``factor`` times as much."""
    return {key: _scaled(figure, factor) for key, figure in figures.items()}


def _scaled(figure: Figure, factor: float) -> Figure:
    if figure.count is not None or figure.value is None:
        return figure
    draws = None if figure.draws is None else figure.draws * np.float32(factor)
    return dataclasses.replace(figure, value=figure.value * factor, draws=draws)


def failing(figures: Figures, points: float, rng: np.random.Generator) -> Figures:
    """A run of which so many more percent of the rows failed, or began cold."""
    result = dict(figures)
    for key, figure in figures.items():
        if key[1] in SHARES and figure.count is not None:
            left = figure.rows - figure.count
            chance = min(1.0, points / 100 * figure.rows / max(1, left))
            count = figure.count + int(rng.binomial(left, chance))
            value = 100.0 * count / figure.rows
            result[key] = dataclasses.replace(figure, value=value, count=count)
    return result


def sources(
    runs: list[list[Figures]], calmest: int, rng: np.random.Generator
) -> Iterator[tuple[str, Draw]]:
    """Ways to draw the runs of both sides of a gate."""

    def version(run: int) -> Figures:
        return runs[run][rng.integers(VERSIONS)]

    def recorded(n: int) -> tuple[list[Figures], list[Figures]]:
        sides = rng.integers(0, len(runs), (2, n))
        return [version(i) for i in sides[0]], [version(i) for i in sides[1]]

    def in_time(n: int) -> tuple[list[Figures], list[Figures]]:
        start = int(rng.integers(len(runs)))
        sides: dict[str, list[Figures]] = {"base": [], "change": []}
        for step, (name, _) in enumerate(order(n, int(rng.integers(1 << 30)))):
            sides[name].append(version((start + step) % len(runs)))
        return sides["base"], sides["change"]

    yield "recorded", recorded
    yield "in time", in_time
    for spread in SPREADS:

        def spread_out(n: int, spread: float = spread) -> tuple[list[Figures], list[Figures]]:
            factors = np.exp(rng.normal(0, spread, (2, n)))
            sides = [[slower(version(calmest), f) for f in side] for side in factors]
            return sides[0], sides[1]

        yield f"{100 * spread:.0f} %", spread_out


def judge(
    conditions: list[gates.Gate], base: list[Figures], change: list[Figures]
) -> list[verdicts.Finding]:
    """Judge the subjects of some conditions, each by itself."""
    findings = []
    for condition in conditions:
        key = (condition.experiment or "", condition.metric, condition.tariff or "")
        sides = [[run[key] for run in side] for side in (base, change)]
        judged = repeats.change(key, sides[0], sides[1], paired=True)
        findings += verdicts.judge([condition], "change", [judged], [])
    return findings


def naive(base: list[Figures], change: list[Figures], key: tuple[str, str, str]) -> bool:
    """Whether a percentile bootstrap over runs, then rows, excludes "no change" upwards."""
    rng = np.random.default_rng(len(base))
    samples = []
    for side in (base, change):
        draws = np.log([run[key].draws for run in side])
        n = len(side)
        picks = rng.integers(0, n, (1000, n))
        rows = rng.integers(0, draws.shape[1], (1000, n))
        samples.append(draws[picks, rows].mean(axis=1))
    return bootstrap.interval(samples[1] - samples[0])[0] > 0


def share(counts: Counter[str], verdict: str) -> str:
    return f"{100 * counts[verdict] / max(1, counts.total()):.1f} %"


def count(
    texts: list[str], draw: Draw, n: int, trials: int, plant: Callable[[Figures], Figures]
) -> dict[str, Counter[str]]:
    """The verdicts of many gates, by condition."""
    conditions = [gates.parse(text) for text in texts]
    counts: dict[str, Counter[str]] = {text: Counter() for text in texts}
    for _ in range(trials):
        base, change = draw(n)
        for finding in judge(conditions, base, [plant(run) for run in change]):
            counts[finding.gate.text][finding.verdict] += 1
    return counts


def table(*columns: str) -> None:
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def shares(counts: Counter[str]) -> list[str]:
    return [share(counts, verdict) for verdict in ("violated", "holds", "not judged")]


def identical(draws: dict[str, Draw], trials: int) -> None:
    """Print the verdicts on identical code, at bounds of no change and of a tenth."""
    table("runs from", "repeats", "condition", "violated", "holds", "not judged")
    for bound, points in (("0%", "0%"), ("10%", "5%")):
        texts = [f"{subject}>{bound}" for subject in CONDITIONS]
        texts += [f"{subject}>{points}" for subject in SHARE_CONDITIONS]
        for name, draw in draws.items():
            for n in (4, 5, 10):
                wanted = texts if name in ("recorded", "in time") else [f"spin.p50>{bound}"]
                for text, counts in count(wanted, draw, n, trials, lambda run: run).items():
                    row(name, n, f"`{text}`", *shares(counts))


def bootstrapped(draws: dict[str, Draw], trials: int) -> None:
    """Print how often a percentile bootstrap over runs and rows sees a rise in identical code."""
    keys = [(name, "p50", "") for name in ("warm", "spin", "starts", "throttled")]
    table("runs from", "repeats", *(f"`{name}.p50`" for name, _, _ in keys))
    for name, draw in draws.items():
        for n in (3, 5, 10):
            hits = Counter[str]()
            for _ in range(trials):
                base, change = draw(n)
                hits.update(key[0] for key in keys if naive(base, change, key))
            row(name, n, *(f"{100 * hits[key[0]] / trials:.1f} %" for key in keys))


def planted(draws: dict[str, Draw], trials: int, rng: np.random.Generator) -> None:
    """Print the verdicts on code with a planted change."""
    table("runs from", "planted", "repeats", "condition", "violated", "holds", "not judged")
    slowdown = ["spin.p50>3%", "spin.cost:spfu>3%", "throttled.cost:spfu>3%"]
    for name, draw in draws.items():
        for n in (5, 10, 20):
            for text, counts in count(
                slowdown, draw, n, trials, lambda run: slower(run, 1.1)
            ).items():
                row(name, "10 % slower", n, f"`{text}`", *shares(counts))
            if name == "recorded":
                more = count(
                    ["warm.failed>1%", "starts.cold>10%"],
                    draw,
                    n,
                    trials,
                    lambda run: failing(run, 20, rng),
                )
                for text, counts in more.items():
                    row(name, "20 points more", n, f"`{text}`", *shares(counts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, default=HERE / "runs.parquet")
    parser.add_argument("--gates", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", choices=("identical", "bootstrap", "planted"))
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    runs, calmest = load(args.runs, rng)
    draws = dict(sources(runs, calmest, rng))
    print(f"{len(runs)} recorded runs, {args.gates} gates each", flush=True)
    if args.part in (None, "identical"):
        print("\nIdentical code\n")
        identical(draws, args.gates)
    if args.part in (None, "bootstrap"):
        print("\nIdentical code, a rise by a percentile bootstrap over runs, then rows\n")
        bootstrapped(draws, args.gates)
    if args.part in (None, "planted"):
        print("\nA planted change\n")
        planted(draws, args.gates, rng)


if __name__ == "__main__":
    main()
