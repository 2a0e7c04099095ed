"""How often inference is right when it is sure, over settings and noises drawn at random."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from uncia.bandwidth.infer import infer_trace

BENCH = Path(__file__).parents[2] / "benches" / "bandwidth" / "infer.py"
DRAWN = 40


@pytest.fixture(scope="module")
def bench() -> Any:
    """The benchmark that the page's figures are made with."""
    spec = importlib.util.spec_from_file_location("bench_of_inference", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_what_is_told_with_nine_tenths_is_right_in_nine_tenths(bench: Any) -> None:
    sure: dict[str, list[bool]] = {key: [] for key in bench.KEYS}
    for truth, trace in bench.drawn(DRAWN, 5):
        result = infer_trace(trace)
        for key, answer in result.as_json().items():
            if key in sure and (result.confidence[key] or 0) >= 0.9:
                sure[key].append(bench.judged(key, answer, truth[key]) == "right")
    for key, right in sure.items():
        assert len(right) >= DRAWN / 5, key
        assert sum(right) >= 0.9 * len(right), key
    assert all(sure["hz"])
