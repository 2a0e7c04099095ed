"""How long the cost analyses take over an invocation table, and how much memory they hold.

    python benches/bills/analyses.py TABLE... [--only NAME] [--memory-limit 3GB] [--json]

Each analysis runs in a process of its own: the exact sums of all tariffs; all distributions of
billable and used resources; utilization with its joint density and correlations; what rounding
adds. For a table of N rows without the trace: uncia trace synth huawei2025 --rows N --parquet.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

ANALYSES = ("inflation", "distributions", "utilization", "rounding")


def run(name: str, tables: list[str], memory_limit: str | None) -> dict[str, object]:
    """Run one analysis in this process."""
    from uncia.backends import connect
    from uncia.costs import distributions, inflation, rounding, utilization

    functions = {
        "inflation": inflation.inflation,
        "distributions": distributions.inflation_cdf,
        "utilization": utilization.utilization,
        "rounding": rounding.rounding,
    }
    begin = time.monotonic()
    with connect(memory_limit=memory_limit) as backend:
        source = tables[0] if len(tables) == 1 else tables
        frame = functions[name](source, backend=backend)
    rows = int(frame["rows"].max()) if "rows" in frame else None
    return {"analysis": name, "seconds": time.monotonic() - begin, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("table", nargs="+")
    parser.add_argument("--only", choices=ANALYSES)
    parser.add_argument("--memory-limit")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        result = run(asked.only, asked.table, asked.memory_limit)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(result | {"peak_bytes": peak}))
        return
    results = []
    for name in (asked.only,) if asked.only else ANALYSES:
        command = [sys.executable, __file__, *asked.table, "--here", "--only", name]
        if asked.memory_limit:
            command += ["--memory-limit", asked.memory_limit]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results.append(json.loads(done.stdout.splitlines()[-1]))
        if not asked.json:
            case = results[-1]
            rows = "" if case["rows"] is None else f"{case['rows']:,} rows"
            print(
                f"{name:14} {case['seconds']:8.1f} s  {case['peak_bytes'] / 2**30:6.2f} GiB  {rows}"
            )
    total = sum(result["seconds"] for result in results)
    if asked.json:
        print(json.dumps(results, indent=2))
    else:
        print(f"{'together':14} {total:8.1f} s")


if __name__ == "__main__":
    main()
