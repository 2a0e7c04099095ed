"""How late the load generator sends: lag (sent - scheduled) against a minimal hyper server.

Builds the server and the generator in release mode, runs each combination of arrival process and
rate, and prints one line each. Both sides run on this machine, whose own noise is part of every
figure: "idle" is the share of the CPUs' time that nobody used during the run.

    python3 benches/load/lag.py [--seconds 20] [--rates 1000 5000]
        [--realtime] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NS_PER_S = 1_000_000_000


def build() -> Path:
    """Builds the examples in release mode and returns their folder."""
    command = ["cargo", "build", "--release", "--locked", "-p", "uncia-load", "--examples"]
    subprocess.run(command, cwd=ROOT, check=True)
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples"


def cpu_times() -> tuple[int, int]:
    """Ticks of all CPUs since boot: in all, and idle."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields), fields[3] + fields[4]


def run(
    generator: Path, url: str, kind: str, rate: int, seconds: int, realtime: bool
) -> dict[str, Any]:
    """One run; returns the generator's last event and the share of idle CPU."""
    with tempfile.TemporaryDirectory() as folder:
        config = {
            "out": f"{folder}/invocations.arrows",
            "seed": 7,
            "realtime": realtime,
            "streams": [
                {
                    "function": "hello",
                    "targets": [{"function": "hello", "url": url}],
                    "arrivals": {
                        "kind": kind,
                        "rate_per_s": str(rate),
                        "duration_ns": seconds * NS_PER_S,
                    },
                }
            ],
        }
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        before = cpu_times()
        process = subprocess.run([generator, path], stderr=subprocess.PIPE, text=True, check=False)
        after = cpu_times()
        if process.returncode != 0:
            sys.exit(f"the generator failed: {process.stderr}")
    done: dict[str, Any] = json.loads(process.stderr.splitlines()[-1])
    done["idle"] = (after[1] - before[1]) / (after[0] - before[0])
    return done


COLUMNS = (
    ("arrivals", 8),
    ("rate/s", 7),
    ("ok", 8),
    ("failed", 7),
    ("lag p50 us", 11),
    ("p90", 8),
    ("p99", 8),
    ("max", 8),
    ("latency p50 us", 15),
    ("p99", 8),
    ("CPU of a core", 14),
    ("idle", 6),
)


def line(kind: str, rate: int, done: dict[str, Any]) -> list[str]:
    """A run as a line of the table."""
    lag, latency = done["lag_us"], done["latency_ms"]
    return [
        kind,
        str(rate),
        str(done["ok"]),
        str(sum(done["failed"].values())),
        *(f"{lag[name]:.1f}" for name in ("p50", "p90", "p99", "max")),
        f"{latency['p50'] * 1e3:.0f}",
        f"{latency['p99'] * 1e3:.0f}",
        f"{done['cpu_s'] / done['elapsed_s']:.0%}",
        f"{done['idle']:.0%}",
    ]


def show(cells: Iterable[str]) -> None:
    print("".join(cell.rjust(width) for cell, (_, width) in zip(cells, COLUMNS, strict=True)))
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=int, default=20, help="length of each run")
    parser.add_argument("--rates", type=int, nargs="+", default=[1_000, 5_000])
    parser.add_argument("--realtime", action="store_true", help="use SCHED_FIFO")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    arguments = parser.parse_args()
    folder = build()
    with subprocess.Popen([folder / "hello_server"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            if not arguments.json:
                show(name for name, _ in COLUMNS)
            for rate in arguments.rates:
                for kind in ("constant", "poisson"):
                    done = run(
                        folder / "load", url, kind, rate, arguments.seconds, arguments.realtime
                    )
                    if arguments.json:
                        print(json.dumps({"arrivals": kind, "rate": rate, **done}), flush=True)
                    else:
                        show(line(kind, rate, done))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
