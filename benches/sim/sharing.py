"""Mean times in M/G/1 with processor sharing against theory, by control variates.

    python benches/sim/sharing.py [--requests 500000] [--seeds 8] [--loads 0.5 0.8 0.95]

Near saturation a mean time is decided by the few longest busy periods, so that a plain mean takes
very many requests to be within a percent. What makes it vary is the work that requests find, and
the mean of that is known (Pollaczek and Khinchine): it is the same under every order of service
that never idles, and follows from arrivals and services alone (Lindley's recursion). So each
stretch of requests has, besides its mean time in the system, the means of the work found, the
service, its square and the gap, all with known expectations, and a linear regression takes out
what they explain (Lavenberg and Welch, *A Perspective on the Use of Control Variables to Increase
the Efficiency of Monte Carlo Simulations*, Management Science 27(3), 1981).

The engine simulates and writes rows, from which times, arrivals and CPU time are taken. Prints the
plain mean and the controlled one with 95 % intervals. Exit code 1 if an interval of the controlled
one is not within 1 % of theory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from uncia import engine, record, yamlio
from uncia.experiment import simulation

SERVICE_NS = 1_000_000
STRETCHES = 20
T_975 = 1.98
"""Student's t for as many degrees of freedom as there are here, rounded up."""


def rows(requests: int, load: float, seed: int, folder: Path) -> pa.Table:
    """Simulate a core that all requests share; service times are gamma with a CV of 1.5."""
    rate = load / SERVICE_NS * 1e9
    phase = {"drawn": {"distribution": "gamma", "mean": "1ms", "cv": 1.5}, "memory": "1KB"}
    function = {
        "vcpu": 1,
        "spot_vcpu": 1,
        "memory": "1KB",
        "arrivals": {
            "kind": "poisson",
            "rate": f"{rate:g}/s",
            "duration": f"{requests / rate:.3f}s",
        },
        "phases": [phase],
    }
    file = {
        "name": "sharing",
        "cluster": {"workers": 1, "vcpu": 1, "memory": "64GB"},
        "models": ["npfu"],
        "interval": "1000s",
        "functions": {"job": function},
    }
    document = yamlio.load(yamlio.dump(file), "<sharing>")
    checked = yamlio.validate(simulation.SimulationFile, document)
    engine.run(
        ["sim", "--config", "-"],
        config=simulation.config(checked, "npfu", "sharing", folder, seed=seed),
    )
    return record.read(folder / "invocations.arrows", "invocations")


def stretches(table: pa.Table, load: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean times of stretches, and by how much each control is off its mean; in service times."""

    def column(name: str) -> np.ndarray:
        return table[name].to_numpy().astype(np.int64)

    arrived = column("scheduled")
    order = np.argsort(arrived, kind="stable")
    arrived = arrived[order]
    spent = (column("ended")[order] - arrived) / SERVICE_NS
    service = (column("cpu_user") + column("cpu_system"))[order] / SERVICE_NS
    gaps = np.diff(arrived, prepend=0) / SERVICE_NS
    # Lindley: the sum of what came less what was done since, above its least so far.
    steps = np.concatenate(([0.0], service[:-1])) - gaps
    sums = np.cumsum(steps)
    work = sums - np.minimum.accumulate(np.minimum(sums, 0))
    second = 1 + 1.5**2
    known = (load * second / 2 / (1 - load), 1.0, second, 1 / load)
    length = len(spent) // STRETCHES

    def means(values: np.ndarray) -> np.ndarray:
        return values[: length * STRETCHES].reshape(STRETCHES, length).mean(axis=1)

    controls = (work, service, service**2, gaps)
    off = [means(values) - mean for values, mean in zip(controls, known, strict=True)]
    return means(spent), np.column_stack(off)


def controlled(times: np.ndarray, off: np.ndarray) -> tuple[float, float]:
    """The intercept of a regression on the controls, and the half-width of its 95 % interval."""
    design = np.column_stack((np.ones(len(times)), off))
    solution, *_ = np.linalg.lstsq(design, times, rcond=None)
    rest = times - design @ solution
    variance = rest @ rest / (len(times) - design.shape[1])
    covariance = np.linalg.inv(design.T @ design) * variance
    return float(solution[0]), float(T_975 * np.sqrt(covariance[0, 0]))


def main() -> int:
    """Simulate, and compare with theory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=500_000)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.5, 0.8, 0.95])
    options = parser.parse_args()
    is_within = True
    for load in options.loads:
        parts = []
        for seed in range(1, options.seeds + 1):
            with tempfile.TemporaryDirectory() as folder:
                parts.append(stretches(rows(options.requests, load, seed, Path(folder)), load))
        times = np.concatenate([part[0] for part in parts])
        off = np.concatenate([part[1] for part in parts])
        theory = 1 / (1 - load)
        plain = T_975 * times.std(ddof=1) / np.sqrt(len(times))
        mean, half = controlled(times, off)
        print(
            f"M/G/1-PS at {load:g}: theory {theory:.4f};"
            f" plain {times.mean():.4f} ± {plain:.4f} ({times.mean() / theory - 1:+.2%});"
            f" controlled {mean:.4f} ± {half:.4f} ({mean / theory - 1:+.2%} ± {half / theory:.2%})",
            flush=True,
        )
        is_within &= abs(mean - theory) + half < theory / 100
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
