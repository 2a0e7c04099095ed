"""The model against another kernel, which runs in an emulated machine.

    .venv/bin/python benches/bandwidth/kernels/compare.py --kernel VMLINUZ --modules DIR \\
        [--cgroups 1|2] [--settings 30] [--seed 1] [--runs DIR] [--json FILE]

The settings, the tasks and the probes are those of ``../kernel.py``. They run in the guest (see
``guest.py``), whose clock follows its instructions, so that nothing of the host disturbs them; the
simulator runs here, given the setting and what the kernel's version and tick rate are. From each
probe alone ``uncia cpu infer`` tells what it can.

What was measured stays in ``--runs``; a second run with the same folder measures what is missing.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from guest import Guest, GuestError, options

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import kernel as bench

from uncia import engine, record
from uncia.bandwidth import infer as inference
from uncia.bandwidth import kernels, profiles, simulated_match
from uncia.bandwidth.simulate import Probe, Setting

ICOUNT = 1  # 2 ns an instruction
SETTLE_S = 120  # of the guest's time: what a kernel does after it was booted
OUTCOMES = ("right", "wrong", "null")

SCRIPT = """uname -r > /out/release
sleep SETTLE
cd /out/configs
for name in *; do
  if [ -e /out/runs/$name ]; then continue; fi
  rm -rf /run/one && mkdir /run/one
  if ENGINE cpu profile --config - < $name > /run/said 2>&1; then
    cp /run/said /run/one
    cp -r /run/one /out/runs/.$name && mv /out/runs/.$name /out/runs/$name
  else
    cat $name /run/said
    exit 1
  fi
done
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options(parser)
    parser.add_argument("--hz", type=int, help="ticks a second; by default, of its config-RELEASE")
    parser.add_argument("--settings", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--groups", type=int, default=6, help="control groups for each setting")
    parser.add_argument("--seconds", type=float, default=12, help="for the tasks of a setting")
    parser.add_argument("--runs", type=Path, help="the runs' folder; unless given, it goes again")
    parser.add_argument("--json", type=Path, help="results")
    given = parser.parse_args()
    guest = Guest(given.kernel, given.modules, given.cgroups, icount=ICOUNT)
    try:
        hz = given.hz or tick_rate(given.kernel)
        if given.runs is not None:
            return compare(guest, given, hz, given.runs)
        with tempfile.TemporaryDirectory(prefix="uncia-bench-") as folder:
            return compare(guest, given, hz, Path(folder))
    except GuestError as error:
        print(error, file=sys.stderr)
        return 2


def tick_rate(kernel: Path) -> int:
    """``CONFIG_HZ`` of the ``config-RELEASE`` beside ``vmlinuz-RELEASE``.

    Raises:
        GuestError: there is none.
    """
    beside_it = kernel.with_name(kernel.name.replace("vmlinuz", "config", 1))
    result = None
    if beside_it != kernel and beside_it.is_file():
        result = re.search(r"^CONFIG_HZ=(\d+)$", beside_it.read_text(), re.MULTILINE)
    if result is None:
        raise GuestError(f"{beside_it} does not tell the kernel's tick rate: give --hz")
    return int(result[1])


def compare(guest: Guest, given: argparse.Namespace, hz: int, folder: Path) -> int:
    """Measures what is not there yet, and says how far the model is from it."""
    settings = bench.draw(given.seed, given.settings)
    measure(guest, settings, given, folder)
    release = (folder / "release").read_text().strip()
    print(f"Linux {release}, {hz} Hz, control groups version {guest.cgroups}")
    done, output = [], []
    for place, setting in enumerate(settings):
        made = bench.model(setting, kernels.of_version(release), hz)
        simulated = Setting(**made, runs=100, work=Probe(duration_ns=bench.PROBE_NS))
        runs = folder / "runs"
        durations = [
            record.read(path)["execution"].to_numpy()
            for path in sorted(runs.glob(f"{place:03}-task-*"))
        ]
        far = []
        for path in sorted(runs.glob(f"{place:03}-probe-*")):
            describe(path)
            result = simulated_match.compare(profiles.read(path), simulated)["interval"]
            far += [] if result is None else [result]
            output.append(infer(path, setting, hz, simulated.scheduler))
        done.append(bench.judge(setting, made, durations, far))
        print(bench.line(done[-1]), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(done, indent=1))
    print(bench.verdict(done))
    for answer in output[0]:
        count = Counter(item[answer] for item in output)
        print(f"inferred {answer}: " + ", ".join(f"{count[it]} {it}" for it in OUTCOMES))
    return 0


def measure(
    guest: Guest, settings: list[dict[str, int]], given: argparse.Namespace, folder: Path
) -> None:
    """Runs what is missing in the guest.

    Raises:
        GuestError: the guest cannot run, or something that ran in it failed.
    """
    configs = folder / "configs"
    configs.mkdir(parents=True, exist_ok=True)
    (folder / "runs").mkdir(exist_ok=True)
    missing = False
    for place, setting in enumerate(settings):
        for name, extra in work(setting, given.groups, given.seconds).items():
            name = f"{place:03}-{name}"
            config = bench.config(setting, extra, "/run/one")
            (configs / name).write_text(json.dumps(config))
            missing = missing or not (folder / "runs" / name).exists()
    if not missing:
        return
    script = SCRIPT.replace("SETTLE", str(SETTLE_S))
    script = script.replace("ENGINE", shlex.quote(str(engine.binary().resolve())))
    if guest.run(["bash", "-c", script], folder) != 0:
        raise GuestError("the engine failed in the guest: see what it printed")


def describe(run: Path) -> None:
    """Writes what the command ``uncia cpu profile`` would: where the run stands on the clock."""
    events = [json.loads(line) for line in (run / "said").read_text().splitlines()]
    started = next(event for event in events if event["event"] == "started")
    (run / "run.yaml").write_text(
        yaml.safe_dump({"run": run.name, "epoch_monotonic_ns": started["epoch_monotonic_ns"]})
    )


def right(found: float | None, true: float, tolerance: float) -> str:
    """Whether a number was told, and right."""
    if found is None:
        return "null"
    return "right" if abs(found / true - 1) <= tolerance else "wrong"


def infer(path: Path, setting: dict[str, int], hz: int, scheduler: str) -> dict[str, str]:
    """What ``uncia cpu infer`` makes of a probe: right, wrong or null."""
    message = inference.infer(profiles.read(path))
    named = "right" if message.scheduler == scheduler else "wrong"
    return {
        "period": right(message.period_us, setting["period"] / 1_000, 0.02),
        "quota": right(message.quota_us, setting["quota"] / 1_000, 0.05),
        "tick rate": right(message.hz, hz, 0),
        "scheduler": "null" if message.scheduler is None else named,
    }


def work(setting: dict[str, int], groups: int, seconds: float) -> dict[str, dict[str, Any]]:
    """What is run of a setting: tasks and probes in groups of their own."""
    tasks = {
        f"task-{group}": bench.tasks(setting, groups, seconds, group) for group in range(groups)
    }
    return {**tasks, **{f"probe-{group}": bench.probe(group) for group in range(bench.PROBES)}}


if __name__ == "__main__":
    sys.exit(main())
