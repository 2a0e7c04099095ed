"""Records how much runs of the same code differ: runs a file many times and keeps the rows.

    python benches/gate/record.py --runs 48 --out benches/gate/runs.parquet

`simulate.py` draws its runs from what this writes: for each request the run (in the order of time),
experiment, latency, whether it failed, whether it started an instance, its cost, and how busy the
machine was with other things during its run.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from uncia import record, tariffs
from uncia.doctor.monitor import BACKGROUND, STEAL

HERE = Path(__file__).parent
TARIFFS = ("aws-lambda-x86", "spfu")
"""One of allocated memory in steps of 1 ms, one of CPU time used."""


def rows(number: int, folder: Path) -> pa.Table:
    """The rows of a run that a simulation needs."""
    table = record.read(folder, "invocations")
    named = pc.invert(pc.ends_with(table["experiment"].cast(pa.utf8()), ".warmup"))
    table = table.filter(named)
    machine = record.read(folder, "machine")
    cost: dict[str, dict[str, float]] = {name: {} for name in TARIFFS}
    for line in tariffs.bill(table, TARIFFS, group_by=("invocation",)):
        if line.rows and line.cost_usd is not None:
            cost[line.tariff][str(line.group["invocation"])] = float(line.cost_usd)
    ids = table["invocation"].to_pylist()
    ok = pc.equal(table["outcome"].cast(pa.utf8()), "ok")
    latency = pc.subtract(table["received"], table["scheduled"])

    def mean(counter: str) -> float:
        values = machine.filter(pc.equal(machine["counter"].cast(pa.utf8()), counter))["value"]
        return float(pc.mean(values).as_py())

    return pa.table(
        {
            "run": pa.array([number] * len(ids), pa.int16()),
            "experiment": table["experiment"].cast(pa.utf8()).dictionary_encode(),
            "latency_us": pc.if_else(ok, pc.divide(latency, 1000), None).cast(pa.int32()),
            "ok": ok,
            "cold": pc.is_in(table["start"].cast(pa.utf8()), pa.array(["cold", "restored"])),
            **{
                f"usd_{name}": pa.array([cost[name].get(i) for i in ids], pa.float32())
                for name in TARIFFS
            },
            "background_percent": pa.array([mean(BACKGROUND)] * len(ids), pa.float32()),
            "steal_percent": pa.array([mean(STEAL)] * len(ids), pa.float32()),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=Path, default=HERE / "gate.yaml")
    parser.add_argument("--runs", type=int, default=48)
    parser.add_argument("--out", type=Path, default=HERE / "runs.parquet")
    parser.add_argument("--folders", type=Path, help="runs that were recorded already")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folders = Path(temporary)
        if args.folders is not None:
            folders = args.folders
        else:
            for number in range(1, args.runs + 1):
                command = [sys.executable, "-m", "uncia", "run", args.file, "--allow-failures"]
                command += ["--quiet", "--seed", str(number), "--out", folders / f"{number:03d}"]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        whole = [path for path in sorted(folders.iterdir()) if (path / "summary.json").exists()]
        table = pa.concat_tables(rows(*item) for item in enumerate(whole)).unify_dictionaries()
    pq.write_table(table, args.out, compression="zstd", compression_level=19)
    print(f"{len(whole)} runs, {table.num_rows} rows: {args.out}")


if __name__ == "__main__":
    main()
