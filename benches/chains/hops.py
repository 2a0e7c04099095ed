"""What a hop of a chain adds, when a function invokes the next and when the platform does.

`hello` in Go runs on the embedded platform, with live instances and a whole vCPU each. One client
sends chains one after another: of one stage, of two, and of a hundred, nested and as a sequence.
For each kind:

* *hop*: the median of chains of two stages less that of chains of one;
* *hundred*: the median of a warm chain of 100 stages.

Run it on a machine that is otherwise idle, with the engine built for release:

    make build && .venv/bin/python benches/chains/hops.py [--requests 2000] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMITS_MS = {
    ("nested", "hop"): 1.5,
    ("sequence", "hop"): 1.0,
    ("nested", "hundred"): 250.0,
    ("sequence", "hundred"): 150.0,
}
"""What the figures are to be at most, by kind."""

FILE = """\
name: hops
seed: 1
platform: {{kind: embedded}}
functions:
  hello: {{source: hello, runtime: go, memory: 128MB, cpu: 1vCPU, keep_alive: 10min, timeout: 60s}}
chains:
  one: {{stages: {{hop: {{function: hello}}}}}}
  two: {{stages: {{hop: {{function: hello, repeat: 2}}}}}}
  hundred: {{stages: {{hop: {{function: hello, repeat: 100}}}}}}
experiments:
"""

EXPERIMENT = """\
  {kind}-{chain}:
    chain: {chain}
    kind: {kind}
    closed: {{clients: 1, requests: {requests}}}
    warmup: {{kind: burst, sizes: [1], bursts: {bursts}, interval: {interval}}}
"""


def experiment_file(requests: int) -> str:
    """The experiment: every kind and length, a warm-up before each."""
    text = FILE.format()
    for kind in ("nested", "sequence"):
        for chain in ("one", "two", "hundred"):
            long = chain == "hundred"
            text += EXPERIMENT.format(
                kind=kind,
                chain=chain,
                requests=max(50, requests // 10) if long else requests,
                # A hundred cold starts, one after the other, are to be over by the next.
                bursts=4 if long else 100,
                interval="15s" if long else "20ms",
            )
    return text


def main() -> int:
    """Run the chains and print the figures; 1 if one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=2_000, help="chains of one and two stages")
    parser.add_argument("--out", type=Path, help="folder of the run; by default a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hops.yaml"
        file.write_text(experiment_file(arguments.requests))
        out = arguments.out or Path(folder) / "run"
        command = [sys.executable, "-m", "uncia", "run", str(file), "--out", str(out), "--quiet"]
        ended = subprocess.run(command, check=False)
        summary = json.loads((out / "summary.json").read_text())
    experiments = summary["experiments"]
    load = os.getloadavg()[0]
    print(f"load {load:.1f}, {os.cpu_count()} CPUs; run: exit code {ended.returncode}")
    is_slow = False
    for kind in ("nested", "sequence"):
        medians = {
            chain: experiments[f"{kind}-{chain}"]["latency_ms"]["p50"]
            for chain in ("one", "two", "hundred")
        }
        figures = {"hop": medians["two"] - medians["one"], "hundred": medians["hundred"]}
        for name, value in figures.items():
            limit = LIMITS_MS[kind, name]
            is_slow |= value > limit
            complete = experiments[f"{kind}-hundred"]["hops"][0]
            print(
                f"{kind:9} {name:8} {value:8.2f} ms (at most {limit:g}),"
                f" {complete['complete']}/{complete['begun']} chains of 100 complete"
            )
    return 1 if is_slow or ended.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
