"""Files as FaaSProfiler and STeLLAR have them, and what Uncia makes of such files."""

from __future__ import annotations

from typing import Any

import yaml

from uncia import yamlio
from uncia.experiment import checks
from uncia.workload import importers
from uncia.workload import model as workload

PROFILER: dict[str, Any] = {
    "test_name": "example_test",
    "test_duration_in_seconds": 15,
    "random_seed": 100,
    "blocking_cli": False,
    "endpoint": "generic",
    "instances": {
        "instance1": {
            "application": "example_app1",
            "url": "http://127.0.0.1:8080/f",
            "data": {"message": "sample.png"},
            "distribution": "Uniform",
            "rate": 1,
            "activity_window": [5, 10],
        },
        "instance2": {
            "application": "example_app2",
            "url": "http://127.0.0.1:8080/g",
            "data": {},
            "distribution": "Poisson",
            "rate": 0.1,
        },
    },
    "perf_monitoring": {"runtime_script": None, "post_script": None},
}

STELLAR: dict[str, Any] = {
    "Sequential": True,
    "Provider": "aws",
    "Runtime": "python3.9",
    "SubExperiments": [
        {
            "Title": "warm",
            "Function": "hellopy",
            "Bursts": 12,
            "BurstSizes": [1, 10],
            "IATSeconds": 3,
            "IATType": "deterministic",
            "DesiredServiceTimes": ["0ms"],
        }
    ],
}


def sub(**changes: Any) -> list[dict[str, Any]]:
    return [{**STELLAR["SubExperiments"][0], **changes}]


def instance(**changes: Any) -> dict[str, Any]:
    changed = {**PROFILER["instances"]["instance2"], **changes}
    return {"one": {key: value for key, value in changed.items() if value is not ...}}


def read(imported: importers.Imported) -> Any:
    """What Uncia makes of the result."""
    document = yamlio.load(yaml.safe_dump(imported.data, sort_keys=False))
    form = checks if imported.kind == "experiment" else workload
    return form.check(document)
