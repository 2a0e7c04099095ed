"""Real gates: of identical code, on this machine as it is and kept busy, and of a planted slowdown.

    python benches/gate/real.py --gates 10 --busy 10 --planted 1 --out results/gates

Each gate is `uncia gate` with runs of 2 s. About 35 s a gate on a quiet machine with two CPUs, more
on a busy one. Busy: as many processes as CPUs that compute and rest in turn, for random times.
Prints a Markdown table; every run is kept in --out.
"""

import argparse
import json
import multiprocessing
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = """\
name: real
seed: 1
platform: {{kind: embedded}}
functions:
  f:
    source: {source}
    memory: 1769MB
    parameters: {{{parameter}: {value}ms}}
experiments:
  warm:
    function: f
    arrivals: {{kind: constant, rate: 30/s, duration: 2s}}
    warmup: {{kind: burst, sizes: [2]}}
"""
FUNCTIONS = {"spin": "cpu", "wait": "time"}
MS = 20.0


def disturb(seed: int) -> None:
    """Compute and rest in turn until killed, or until the parent is gone."""
    rng = random.Random(seed)
    parent = os.getppid()
    while os.getppid() == parent:
        end = time.monotonic() + rng.expovariate(1 / 2)
        while time.monotonic() < end:
            sum(range(1000))
        time.sleep(rng.expovariate(1 / 2))


@contextmanager
def busy(active: bool) -> Iterator[None]:
    """Keep the machine busy."""
    count = (os.cpu_count() or 1) if active else 0
    others = [multiprocessing.Process(target=disturb, args=(i,), daemon=True) for i in range(count)]
    for process in others:
        process.start()
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.join()


def write(folder: Path, name: str, function: str, ms: float) -> Path:
    path = folder / f"{name}.yaml"
    text = FILE.format(source=function, parameter=FUNCTIONS[function], value=ms)
    path.write_text(text, encoding="utf-8")
    return path


def gate(base: Path, change: Path, out: Path, repeats: int, condition: str, seed: int) -> dict:
    """One gate; returns what it found."""
    command = [sys.executable, "-m", "uncia", "gate", base, change, "--repeat", str(repeats)]
    command += ["--fail-on", condition, "--out", out, "--seed", str(seed), "--json", "--quiet"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, 1, 3) or not done.stdout:
        raise SystemExit(f"{out}: uncia gate ended with {done.returncode}")
    (finding,) = json.loads(done.stdout)["gates"]
    return finding


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gates", type=int, default=10, help="of identical code, undisturbed")
    parser.add_argument("--busy", type=int, default=10, help="of identical code, disturbed")
    parser.add_argument("--planted", type=int, default=1, help="of 10 % slower code, 10 pairs")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=list(FUNCTIONS))
    parser.add_argument("--out", type=Path, default=Path("results/gates"))
    args = parser.parse_args()
    args.out.mkdir(parents=True)
    plans = []
    for number in range(args.gates + args.busy):
        kind = "undisturbed" if number < args.gates else "disturbed"
        function = args.functions[number % len(args.functions)]
        plans.append((f"{kind}, identical", function, 1.0, args.repeat, "p50>10%", number))
    for number in range(args.planted):
        for function in args.functions:
            plans.append(("undisturbed, 10 % slower", function, 1.1, 10, "p50>3%", number))
    print("| machine, code | function | repeats | condition | verdict | reason |", flush=True)
    print("|---|---|---|---|---|---|")
    counts: dict[str, Counter[str]] = {}
    for index, (kind, function, factor, repeats, condition, number) in enumerate(plans):
        folder = args.out / f"{index:02d}"
        folder.mkdir()
        base = write(folder, "base", function, MS)
        change = write(folder, "change", function, MS * factor)
        with busy(kind.startswith("disturbed")):
            seed = 1000 * index + number
            finding = gate(base, change, folder / "runs", repeats, condition, seed)
        counts.setdefault(kind, Counter())[finding["verdict"]] += 1
        cells = (kind, function, str(repeats), f"`{condition}`", finding["verdict"])
        print(f"| {' | '.join(cells)} | {finding['reason']} |", flush=True)
    for kind, verdicts in counts.items():
        print(f"\n{kind}: {', '.join(f'{n} {verdict}' for verdict, n in verdicts.items())}")


if __name__ == "__main__":
    main()
