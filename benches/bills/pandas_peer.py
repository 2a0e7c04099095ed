"""Uncia against pandas used as the cost paper's artifact uses it, on the same raw request tables.

    python benches/bills/pandas_peer.py [--rows 5000000] [--raw DIR] [--work DIR]

Both read request tables of Huawei's trace of 2025 (raw CSV; synthetic unless --raw names a folder),
and compute what Figures 2 and 3 show: billable vCPU and memory under five tariffs over what was
used, their distributions, and utilization with its correlations. Each side runs in processes of
its own; time is wall-clock time and CPU time, memory the largest resident set of any of its
processes. Both run from bytecode, as installed packages do.

The pandas side follows the artifact's steps, in code written for this comparison: every part is
read whole and cleaned, flavours come from the pod's name, the parts are concatenated and pickled;
the analysis loads the pickle, names each row's flavour by a row-wise function, rounds floats, and
takes 101 percentiles of each array. Text is in columns of Python objects, as it was then.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TARIFFS = (
    "huawei-functiongraph",
    "aws-lambda-x86",
    "gcp-run-request",
    "azure-consumption",
    "cloudflare-workers",
)
POD = re.compile(r"(.+)-(\d+)-(\d+)-.+")
MOST_MEMORY = 10_240
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


def pandas_side(raw: Path, work: Path) -> dict[str, object]:
    """The artifact's way."""
    import numpy as np
    import pandas as pd

    pd.set_option("future.infer_string", False)

    def flavour(pod: str) -> tuple[float, float]:
        match = POD.match(pod)
        return (float(match[2]), float(match[3])) if match else (np.nan, np.nan)

    begin = time.monotonic()
    parts = []
    for path in parts_of(raw):
        part = pd.read_csv(path).dropna()
        part = part[part["time_worker"] < 1e10]
        part = part[["podID", "runtimeCost", "cpu_usage", "memory_usage"]]
        sizes = part["podID"].apply(flavour)
        part["millicores"] = sizes.apply(lambda size: size[0])
        part["memory_mb"] = sizes.apply(lambda size: size[1])
        part = part.dropna()
        part["cpu_cores"] = part["millicores"] / 1000
        part = part[part["memory_mb"] <= MOST_MEMORY]
        part["relative_cpu"] = part["cpu_usage"] / part["cpu_cores"]
        part["relative_mem"] = part["memory_usage"] / part["memory_mb"]
        part["cpu_time"] = part["cpu_usage"] * part["runtimeCost"]
        parts.append(part)
    pd.concat(parts).to_pickle(work / "requests.pickle")
    del parts, part
    reading = time.monotonic() - begin

    rows = pd.read_pickle(work / "requests.pickle")
    rows = rows[rows["cpu_time"] != 0]
    rows["flavour"] = rows.apply(
        lambda row: f"{int(row['millicores'])}-{int(row['memory_mb'])}", axis=1
    )
    sizes = [name.split("-") for name in rows["flavour"].unique()]
    ratio = float(np.mean([float(cpu) / float(memory) for cpu, memory in sizes]))

    e = rows["runtimeCost"] * 1000
    c, m, u = rows["cpu_cores"], rows["memory_mb"], rows["memory_usage"]
    k = rows["cpu_usage"] * rows["runtimeCost"] * 1000
    used = {"vcpu": k, "memory": u * e}
    larger = np.maximum(ratio * m / 1000, c)
    google = 100 * np.ceil(e / 100)
    azure = np.where(e < 100, 100, np.ceil(e))
    billed = {
        "huawei-functiongraph": (c * np.ceil(e), m * np.ceil(e)),
        "aws-lambda-x86": (
            larger * np.ceil(e),
            np.where(ratio * m / 1000 < c, 1000 * larger / ratio, m) * np.ceil(e),
        ),
        "gcp-run-request": (c * google, m * google),
        "azure-consumption": (c * azure, 128 * np.ceil(u / 128) * azure),
        "cloudflare-workers": (np.ceil(k), None),
    }
    inflation = {}
    steps = list(range(101))
    for name, (vcpu, memory) in billed.items():
        inflation[name] = {
            "vcpu": float(vcpu.mean() / used["vcpu"].mean()),
            "memory": 0.0 if memory is None else float(memory.mean() / used["memory"].mean()),
        }
        np.percentile(vcpu / 1000, steps)
        if memory is not None:
            np.percentile(memory / 1024 / 1000, steps)
    for amounts in used.values():
        np.percentile(amounts, steps)
    both = rows[["relative_cpu", "relative_mem"]]
    for column in both:
        np.percentile(both[column], steps)
    return {
        "rows": len(rows),
        "reading": reading,
        "analysis": time.monotonic() - begin - reading,
        "inflation": inflation,
        "below_50": [float((both[name] < 0.5).mean()) for name in both],
        "pearson": float(both.corr().iloc[0, 1]),
        "spearman": float(both.corr(method="spearman").iloc[0, 1]),
    }


def uncia_side(raw: Path, work: Path) -> dict[str, object]:
    """The same with Uncia: the commands that a person would run, one after the other."""
    table = work / "table"

    def uncia(*arguments: str | Path) -> str:
        command = [sys.executable, "-m", "uncia", *map(str, arguments)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    begin = time.monotonic()
    uncia("trace", "import", "huawei2025", *parts_of(raw), "--out", table)
    named = [part for name in TARIFFS for part in ("--tariff", name)]
    reading = time.monotonic() - begin
    entries = json.loads(
        uncia("cost", "inflation", table, *named, "--fit", "paper", "--cdf", "--json")
    )
    used = json.loads(uncia("cost", "utilization", table, "--fit", "paper", "--json"))
    return {
        "rows": entries[0]["rows"],
        "reading": reading,
        "analysis": time.monotonic() - begin - reading,
        "inflation": {
            entry["tariff"]: {"vcpu": entry["vcpu"], "memory": entry["memory"]} for entry in entries
        },
        "below_50": [entry["below_50"] for entry in used],
        "pearson": used[0]["pearson"],
        "spearman": used[0]["spearman"],
        "spearman_error": used[0]["spearman_error"],
    }


SIDES = {"pandas": pandas_side, "uncia": uncia_side}


def parts_of(raw: Path) -> list[Path]:
    """The request tables of a folder; the cold starts are not needed here."""
    return sorted(path for path in raw.rglob("*.csv") if "cold" not in str(path.relative_to(raw)))


def measure(side: str, raw: Path, work: Path) -> dict[str, object]:
    """Run a side in a process of its own."""
    work.mkdir(parents=True, exist_ok=True)
    # Uncia's warnings of single bad rows are not part of the result.
    command = [sys.executable, __file__, "--side", side, "--raw", str(raw), "--work", str(work)]
    environment = {name: os.environ[name] for name in os.environ if name != _NO_BYTECODE}
    begin = time.monotonic()
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    seconds = time.monotonic() - begin
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result | {"seconds": seconds}


def compile_uncia() -> None:
    """Write Uncia's bytecode, which a source tree lacks; that of pandas came with its install."""
    import uncia

    compileall.compile_dir(Path(uncia.__file__).parent, quiet=1)


def synthetic(folder: Path, rows: int) -> None:
    """Raw request tables, if they are not there."""
    if not folder.exists():
        options = ["--rows", str(rows), "--seed", "1", "--out", str(folder)]
        command = [sys.executable, "-m", "uncia", "trace", "synth", "huawei2025", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        result = SIDES[asked.side](asked.raw, asked.work)
        usages = [
            resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        ]
        used = {
            "cpu": sum(usage.ru_utime + usage.ru_stime for usage in usages),
            "peak_bytes": max(usage.ru_maxrss for usage in usages) * 1024,
        }
        print(json.dumps(result | used))
        return
    work = asked.work or Path(tempfile.mkdtemp(prefix="uncia-peer-"))
    try:
        raw = asked.raw or work / "raw"
        if asked.raw is None:
            synthetic(raw, asked.rows)
        compile_uncia()
        size = sum(path.stat().st_size for path in parts_of(raw))
        print(f"{len(parts_of(raw))} files, {size / 1e9:.2f} GB, {os.cpu_count()} processors")
        results = {side: measure(side, raw, work / side) for side in SIDES}
    finally:
        if asked.work is None:
            shutil.rmtree(work, ignore_errors=True)
    for side, result in results.items():
        print(
            f"{side:8} {result['rows']:>12,} rows {result['seconds']:9.1f} s"
            f" ({result['reading']:.1f} s to read and keep rows, {result['analysis']:.1f} s for"
            f" the analyses) {result['cpu']:.1f} CPU-s {result['peak_bytes'] / 2**30:8.2f} GiB"
        )
    for name in ("seconds", "reading", "analysis", "cpu", "peak_bytes"):
        print(f"pandas / uncia, {name}: {results['pandas'][name] / results['uncia'][name]:.1f}")
    print(json.dumps({side: result["inflation"] for side, result in results.items()}, indent=2))
    for name in ("below_50", "pearson", "spearman"):
        print(name, *(result[name] for result in results.values()))


if __name__ == "__main__":
    main()
