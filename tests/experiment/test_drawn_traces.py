"""Simulations whose BB Trace is drawn anew for each seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import uncia
from uncia.errors import UnciaError

FILE: dict[str, Any] = {
    "name": "drawn",
    "seed": 3,
    "repeat": 2,
    "cluster": {"workers": 1, "vcpu": 16, "memory": "8GB"},
    "models": ["sim", "npfu"],
    "trace": {"bb": {"functions": 40, "offered_load": 0.2}, "too_large": "clip"},
}


def test_each_seed_has_a_trace_of_its_own_with_the_load_asked_for(tmp_path: Path) -> None:
    result = uncia.simulate(FILE, out=tmp_path / "run")
    assert set(result) == {"sim-3", "sim-4", "npfu-3", "npfu-4"}
    assert result["sim-3"]["arrived"] == result["npfu-3"]["arrived"] != result["sim-4"]["arrived"]
    for values in result.values():
        # Counts are whole, and few of 40 functions ask for most.
        assert 0.1 < values["offered_load"] < 0.4
        assert values["served"] == values["arrived"] > 0
    warnings = yaml.safe_load((tmp_path / "run/run.yaml").read_text())["warnings"]
    assert not [words for words in warnings if "than is allocated" in words]
    again = uncia.simulate(FILE | {"seed": 4, "repeat": 1}, out=tmp_path / "again")
    assert again["npfu"]["arrived"] == result["npfu-4"]["arrived"]
    assert json.loads(json.dumps(again["npfu"]["totals"])) == result["npfu-4"]["totals"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("trace", "words"),
    [
        ({"bb": {"functions": 40}, "path": "a"}, "either the table at a path, or a BB Trace"),
        ({}, "either the table at a path, or a BB Trace"),
        ({"bb": {"functions": 40}, "experiment": "a"}, "a BB Trace has none"),
        ({"bb": {"functions": 40, "offered_load": 0}}, "greater than 0"),
        ({"bb": {"functions": 40, "seed": 1}}, "seed"),
    ],
)
def test_what_is_no_trace_is_refused(trace: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match=words):
        uncia.simulate(FILE | {"trace": trace}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
