"""What the embedded platform adds to a request and what a cold start takes, beside peers.

Each repetition drives the Python function ``hello`` at 100 requests a second through

* ``uncia``: the embedded platform, by its function URL (overhead.yaml);
* ``functions-framework``: Google's functions-framework for Python, one process that isolates and
  meters nothing;

one after the other, with the same load generator. *Overhead* is the client's latency minus the
time in the handler by the function's own clock. Figures are medians over the repetitions, with the
range beside them.

    .venv/bin/python benches/platform/overhead.py [--repeat 3] [--peers DIR] [--json FILE]

``--peers DIR`` names a folder with functions-framework; it is made there when it does
not exist. Without it only uncia is measured.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import zipfile
from fractions import Fraction
from pathlib import Path

import ending
import numpy as np
import pyarrow.compute as pc
from peers import free_port, functions_framework, server

from uncia import record
from uncia.functions import package
from uncia.stats.quantiles import quantile
from uncia.units import NS_PER_S
from uncia.workload.arrivals import constant
from uncia.workload.client import Load, Stream, drive

HERE = Path(__file__).resolve().parent
RATE_PER_S, DURATION_S = 100, 20
QUANTILES = {"p50": Fraction(1, 2), "p99": Fraction(99, 100)}
# Adapts the Lambda handler to functions-framework's signature, which is given a Flask request.
ADAPTER = """
import json
from handler import handler as lambda_handler

def main(request):
    return json.dumps(lambda_handler(request.get_json(silent=True) or {}, None)), 200, {
        "Content-Type": "application/json"}
"""

Figures = dict[str, float]


def quantiles(name: str, values: np.ndarray) -> Figures:
    """Quantiles of ``values`` (ns) in milliseconds, under ``name_p50_ms`` and so on."""
    ordered = np.sort(values)
    result = {key: quantile(ordered, p) for key, p in QUANTILES.items()}
    return {f"{name}_{key}_ms": value / 1e6 for key, value in result.items() if value is not None}


def overhead(folder: Path, experiment: str | None = None) -> np.ndarray:
    """Latency minus handler time, in ns, of the answered invocations in ``folder``."""
    rows = record.read(folder, "invocations")
    spans = record.read(folder, "spans")
    if experiment is not None:
        rows = rows.filter(pc.equal(rows["experiment"].cast("string"), experiment))
    rows = rows.filter(pc.equal(rows["outcome"].cast("string"), "ok"))
    handlers = spans.filter(pc.equal(spans["name"].cast("string"), "handler"))
    inside = dict(
        zip(
            handlers["invocation"].to_pylist(),
            pc.subtract(handlers["end"], handlers["start"]).to_pylist(),
            strict=True,
        )
    )
    latency = pc.subtract(rows["received"], rows["scheduled"]).to_pylist()
    result = [
        value - inside[invocation]
        for invocation, value in zip(rows["invocation"].to_pylist(), latency, strict=True)
        if invocation in inside
    ]
    if len(result) < rows.num_rows or not result:
        raise SystemExit(f"{folder}: {rows.num_rows - len(result)} rows lack the handler's time")
    return np.array(result, dtype=np.int64)


def measure_uncia(work: Path) -> Figures:
    """One run of overhead.yaml."""
    out = work / "run"
    command = [sys.executable, "-m", "uncia", "run", str(HERE / "overhead.yaml"), "--out", str(out)]
    ending.run(command, quiet=True)
    rows = record.read(out, "invocations")
    cold = rows.filter(
        pc.and_(
            pc.equal(rows["experiment"].cast("string"), "cold"),
            pc.equal(rows["start"].cast("string"), "cold"),
        )
    )
    latency = pc.subtract(cold["received"], cold["scheduled"]).to_numpy()
    return quantiles("warm_overhead", overhead(out, "warm")) | quantiles("cold_latency", latency)


def measure_url(work: Path, url: str, body: bytes) -> Figures:
    """The same load on a server that is up already."""
    arrivals = constant.Process.model_validate(
        {"kind": "constant", "rate": f"{RATE_PER_S}/s", "duration": f"{DURATION_S}s"}
    )
    stream = Stream("hello", [("hello", url)], arrivals, body=body)
    drive(
        Load(
            run="peer",
            experiment="warm",
            platform="peer",
            streams=[stream],
            seed=1,
            out=work / "invocations.arrows",
            spans_out=work / "spans.arrows",
            total_timeout_ns=10 * NS_PER_S,
        )
    )
    return quantiles("warm_overhead", overhead(work))


def unpack_hello(folder: Path) -> None:
    with zipfile.ZipFile(package("hello", "python").path) as archive:
        archive.extractall(folder)
    (folder / "main.py").write_text(ADAPTER)


def measure_functions_framework(work: Path, peers: Path) -> Figures:
    code, port = work / "code", free_port()
    unpack_hello(code)
    command = functions_framework.command("main", port)
    with server(command, port, code, functions_framework.environment(peers)):
        return measure_url(work, f"http://127.0.0.1:{port}/", b"{}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    contenders = {"uncia": measure_uncia}
    if options.peers is not None:
        peers = options.peers.resolve()
        functions_framework.install(peers)
        contenders["functions-framework"] = lambda work: measure_functions_framework(work, peers)
    result: dict[str, list[Figures]] = {name: [] for name in contenders}
    for repetition in range(options.repeat):
        for name, measure in contenders.items():
            with tempfile.TemporaryDirectory(prefix="uncia-bench-") as work:
                result[name].append(measure(Path(work)))
            print(f"{repetition + 1}/{options.repeat} {name}: {result[name][-1]}", file=sys.stderr)
    print("| platform | figure | median | least | most |\n|---|---|---|---|---|")
    for name, runs in result.items():
        for key in runs[0]:
            values = [run[key] for run in runs]
            median, least, most = statistics.median(values), min(values), max(values)
            print(f"| {name} | {key} | {median:.3f} | {least:.3f} | {most:.3f} |")
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    ending.stop_on_sigterm()
    main()
