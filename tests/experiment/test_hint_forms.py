"""Hints in experiment files and simulations, and sentences that a person sees before and after."""

from pathlib import Path
from typing import Any

import pytest

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import checks, simulation, table
from uncia.experiment.simulation import SimulationFile

FILE: dict[str, Any] = {
    "name": "x",
    "platform": {"kind": "embedded", "capacity_cpu": "1vCPU", "capacity_memory": "512MB"},
    "functions": {"f": {"source": "hello", "memory": "256MB"}},
    "experiments": {
        "e": {"function": "f", "arrivals": {"kind": "poisson", "rate": "1/s", "duration": "1s"}}
    },
}


def check(**changes: Any) -> Any:
    experiment = {**FILE["experiments"]["e"], **changes.pop("experiment", {})}
    data = {**FILE, **changes, "experiments": {"e": experiment}}
    return checks.check(yamlio.load(yamlio.dump(data), "x.yaml"))


def test_hints_become_what_the_engine_takes() -> None:
    for form, engine in (
        ({"kind": "perfect"}, {"kind": "perfect", "within_ns": None}),
        ({"kind": "lying"}, {"kind": "lying", "within_ns": None, "count": 5}),
        (
            {"kind": "noisy", "error": 0.5, "within": "2ms"},
            {"kind": "noisy", "within_ns": 2_000_000, "error": 0.5, "missing": 0.0},
        ),
    ):
        file = check(experiment={"hints": form})
        assert file.experiments["e"].streams()[0].hints.engine() == engine


@pytest.mark.parametrize(
    ("experiment", "why"),
    [
        ({"hints": {"kind": "perfect", "error": 0.1}}, "error is not of hints that are perfect"),
        ({"hints": {"kind": "noisy", "count": 3}}, "count is not of hints that are noisy"),
        ({"hints": {"kind": "noisy", "error": 1.5}}, "less than or equal to 1"),
        ({"hints": {"kind": "guessing"}}, "perfect"),
        (
            {
                "arrivals": None,
                "closed": {"clients": 1, "duration": "1s"},
                "hints": {"kind": "lying"},
            },
            "of others nobody knows",
        ),
    ],
)
def test_hints_that_cannot_be_are_sentences(experiment: dict[str, Any], why: str) -> None:
    with pytest.raises(UnciaError, match=why):
        check(experiment=experiment)


def test_simulated_functions_have_hints_and_a_budget() -> None:
    file = SimulationFile.model_validate(
        {
            "name": "s",
            "cluster": {"workers": 1, "vcpu": 4, "memory": "8GB"},
            "functions": {
                "f": {
                    "vcpu": 1,
                    "memory": "1GB",
                    "min_instances": 2,
                    "arrivals": FILE["experiments"]["e"]["arrivals"],
                    "phases": [{"duration": "1ms", "memory": "1MB"}],
                }
            },
            "hints": {"kind": "none", "instances": 3},
        }
    )
    (function,) = simulation.config(file, "sim", "run", Path())["functions"]
    assert (function["hints"], function["hint_instances"], function["min_instances"]) == (
        None,
        3,
        2,
    )


def test_warnings_are_shown_once_and_not_without_end() -> None:
    warnings = ["a", "a", "b " * 400, "c", "d", "d"]
    lines = list(table.warning_lines(warnings))
    assert lines[0] == "Warning: a"
    assert len(lines) == 4
    assert max(map(len, lines)) < 500
    assert lines[-1] == "4 warnings in the report."
    assert list(table.warning_lines([])) == []
