"""What the filters of system calls cost: a call, a request and a cold start with and without.

    .venv/bin/python benches/platform/filters.py [--repeat 3]

System calls and the filter's installation are measured in processes of their own, by
``crates/worker/examples/filters.rs``. Requests and cold starts are those of overhead.yaml, in turn
on the engine as it is and on one that finds a kernel without filters (without_filters.py).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from ending import stop_on_sigterm
from overhead import Figures, measure_uncia

from uncia import engine

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]


def wrapper(folder: Path) -> Path:
    """The engine, on a kernel without filters."""
    path = folder / "engine"
    script = HERE / "without_filters.py"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} {engine.binary()} "$@"\n')
    path.chmod(0o755)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    command = ["cargo", "run", "--quiet", "--release", "-p", "uncia-worker", "--example", "filters"]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    result: dict[str, list[Figures]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        engines = {"with": engine.binary(), "without": wrapper(Path(folder))}
        for repetition in range(repeat):
            for name, binary in engines.items():
                os.environ["UNCIA_ENGINE"] = str(binary)
                work = Path(folder) / f"{name}-{repetition}"
                work.mkdir()
                result[name].append(measure_uncia(work))
    for name, runs in result.items():
        for key in runs[0]:
            values = [run[key] for run in runs]
            middle, least, most = statistics.median(values), min(values), max(values)
            print(f"{name:8} {key:24} {middle:7.3f} ({least:.3f} to {most:.3f})")


if __name__ == "__main__":
    stop_on_sigterm()
    main()
