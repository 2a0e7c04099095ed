"""Suites and results that are made up, for tests of what is made of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from record_rows import table

from uncia import record
from uncia.suites import catalogue, perform, results
from uncia.suites.results import Results

MS = 1_000_000

EXPERIMENT = """\
name: made-up
platform: {kind: embedded}
functions:
  hello: {source: hello}
experiments:
  slow: {function: hello, arrivals: {kind: constant, rate: 9/s, duration: 1s}}
  fast: {function: hello, arrivals: {kind: constant, rate: 9/s, duration: 1s}}
"""

HEADER = """\
title: A made-up paper
citation: Nobody, nowhere
description: For tests.
"""

ENTRY = """\
shows: Figure 1
title: slow and fast
section: "1"
description: Two experiments.
runs:
  only: {file: ./experiment.yaml, quick: {only: [fast]}}
subjects:
  late: {experiment: slow, skip: 5}
figures:
  - name: speed
    title: Execution
    x: {title: " "}
    y: {title: "mean execution, ms"}
    series:
      - {name: ours, x: [one, two], subjects: [slow, fast], y: "*.execution_mean"}
    printed:
      - {name: A cloud, x: one, y: 12, place: page 1}
printed:
  - what: execution
    value: 12
    unit: ms
    provider: A cloud
    place: page 1
    ours: slow.execution_mean
claims:
"""


def claim(text: str, **more: str) -> dict[str, str]:
    """A claim of an entry."""
    return {"paper": "Somebody says so", "place": "page 1", "claim": text, **more}


def suite(folder: Path, claims: Mapping[str, Mapping[str, str | bool]], entry: str = ENTRY) -> Path:
    """Write a suite with one entry, ``fig1``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.yaml").write_text(HEADER)
    # Not found as an entry: names of entries' files are those in the folder itself.
    (folder / "experiments").mkdir(exist_ok=True)
    (folder / "experiments" / "experiment.yaml").write_text(EXPERIMENT)
    text = entry.replace("./experiment.yaml", "./experiments/experiment.yaml")
    written = yaml.safe_dump({"claims": dict(claims)}) if claims else ""
    (folder / "fig1.yaml").write_text(text.replace("claims:\n", written))
    return folder


def row(experiment: str, number: int, **more: Any) -> dict[str, Any]:
    """A request that ended ok after 10 ms of execution."""
    return {
        "run": "r",
        "experiment": experiment,
        "platform": "embedded",
        "function": "hello",
        "invocation": f"{experiment}-{number}",
        "attempt": 1,
        "scheduled": number * 100 * MS,
        "sent": number * 100 * MS,
        "received": number * 100 * MS + 12 * MS,
        "outcome": "ok",
        "start": "warm",
        "instance": "i1",
        "started": number * 100 * MS + MS,
        "execution": 10 * MS,
        "allocated_cpu": 1_000_000,
        "allocated_memory": 128 << 20,
    } | more


def times(experiment: str, executions_ms: Sequence[float]) -> list[dict[str, Any]]:
    """Requests with these executions."""
    return [
        row(experiment, number, execution=round(ms * MS)) for number, ms in enumerate(executions_ms)
    ]


def write_run(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    *,
    machine: Sequence[Mapping[str, Any]] = (),
    spans: Sequence[Mapping[str, Any]] = (),
    instances: Sequence[Mapping[str, Any]] = (),
    status: str = "complete",
    failures: Sequence[str] = (),
    base: str | None = None,
) -> None:
    """Write the folder of a run, or replace it."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {"invocations": rows, "machine": machine, "spans": spans, "instances": instances}
    for name, content in tables.items():
        record.write(table(content, name), folder / f"{name}.parquet", name)
    shared = {"functions": ["hello"], **({} if base is None else {"base": base})}
    described = {str(item["experiment"]): shared for item in rows}
    meta = {
        "run": "r",
        "status": status,
        "failures": list(failures),
        "platform": {"kind": "embedded"},
        "experiments": described,
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(meta))
    (folder / "summary.json").write_text("{}")


def judged(suite_folder: Path, folder: Path) -> Results:
    """The results in a folder, of which runs were written by hand."""
    result = catalogue.find(str(suite_folder))
    if not (folder / perform.STATE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        perform.State(folder, result.source).write()
    return results.read(perform.State.read(folder), result)
