"""The numbers of the cost paper's section 2: published, and as the commands give them.

    python benches/bills/reproduce.py --rows 2000000 > reproduced.md
    python benches/bills/reproduce.py --trace R1 R2 R3 R4 R5 > reproduced.md
    python benches/bills/reproduce.py --prices

Without ``--trace`` the commands run on a synthetic trace, which is calibrated to the published
statistics: that what comes out is close to what was published then says that the commands compute
what they should, and nothing about the trace itself. Numbers that follow from prices alone do not
depend on any trace.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

Answer = list[dict[str, Any]]

INFLATION: Final = {
    "huawei-functiongraph": (2.145263296495705, 2.6088776939483993),
    "aws-lambda-x86": (2.491895006337562, 2.7159686829558014),
    "gcp-run-request": (3.6259408698146585, 4.350769451586825),
    "azure-consumption": (3.445964353693007, 1.571093104636354),
    "cloudflare-workers": (1.0098841505130247, 0.0),
}
"""Tariff -> billed over used, vCPU and memory: Figure 2, as the artifact prints it."""

FEES: Final = {
    ("aws-lambda-x86", "0.072357vCPU/128MB"): 96.0,
    ("gcp-run-request", "0.08vCPU/512MB"): 126.183,
    ("gcp-run-request", "0.333vCPU/512MB"): 43.281,
    ("gcp-run-request", "0.5vCPU/512MB"): 30.189,
    ("gcp-run-request", "1vCPU/512MB"): 15.842,
    ("azure-consumption", "1vCPU/1GB"): 12.5,
    ("ibm-code-engine", "0.25vCPU/1GB"): 44.325,
    ("ibm-code-engine", "0.5vCPU/2GB"): 22.163,
    ("ibm-code-engine", "1vCPU/4GB"): 11.081,
    ("huawei-functiongraph", "0.3vCPU/128MB"): 95.981,
    ("huawei-functiongraph", "1vCPU/1GB"): 11.998,
    ("cloudflare-workers", "128MB"): 15.0,
}
"""Tariff and size -> the fee in billable ms: Figure 5, left."""

PRICES: Final = {
    ("aws-lambda-x86", "usd_per_s"): 2.8792e-5,
    ("gcp-run-request", "usd_per_s"): 2.8319e-5,
    ("gcp-run-instance", "cpu_memory_ratio"): 9.0,
    ("ibm-code-engine", "cpu_memory_ratio"): 9.64,
    ("aws-ec2-c6g-medium", "relative"): 0.41136,
    ("aws-fargate-arm", "relative"): 0.47769,
}
"""Tariff and column of ``uncia cost prices`` -> Figure 1, and sections 1 and 2.2."""

RAW_ROWS: Final = 947_970_744
LONG_ROWS: Final = 527_054_654
KEPT_ROWS: Final = 793_999_482
USED_ROWS: Final = 558_735_833


@dataclass(frozen=True)
class Number:
    """One number.

    Attributes:
        where: figure or section, and what it is.
        published: by the paper or its artifact.
        command: which gives it, after ``uncia``.
        read: finds it in the command's answer.
        of_trace: whether it depends on the trace.
    """

    where: str
    published: float
    command: tuple[str, ...]
    read: Callable[[Answer], float | None]
    of_trace: bool = True


def numbers(table: str) -> list[Number]:
    """Every number that a command gives.

    Args:
        table: the imported trace.
    """
    inflation = ("cost", "inflation", table, "--fit", "paper")
    utilization = ("cost", "utilization", table, "--fit", "paper")
    starts = ("cost", "coldstarts", table, "--match", "paper", "--fit", "paper")
    starts = (*starts, "-t", "huawei-functiongraph")
    of_two = ("-t", "gcp-run-request", "-t", "azure-consumption", "--fit", "paper")
    long = ("cost", "rounding", table, *of_two)
    every = ("cost", "rounding", table, "--at-least", "0ms", *of_two)
    result = [
        Number(f"Figure 2: {tariff}, {what}", values[place], inflation, _cell(tariff, what))
        for tariff, values in INFLATION.items()
        for place, what in enumerate(("vcpu", "memory"))
    ]
    result += [
        Number(
            "Section 2.3: rows with CPU time, of all rows read",
            USED_ROWS / RAW_ROWS,
            inflation,
            lambda answer: _rows_kept(answer, table),
        ),
        Number(
            "Figure 3: rows below half of the CPU",
            0.656,
            utilization,
            _of("resource", "cpu", "below_50"),
        ),
        Number(
            "Figure 3: rows below half of the memory",
            0.76,
            utilization,
            _of("resource", "memory", "below_50"),
        ),
        Number("Figure 3: Pearson", 0.552, utilization, _of("resource", "cpu", "pearson")),
        Number("Figure 3: Spearman", 0.565, utilization, _of("resource", "cpu", "spearman")),
        Number(
            "Figure 4: starts that are not repaid, vCPU",
            0.421,
            starts,
            _of("tariff", "huawei-functiongraph", "cpu_not_repaid_share"),
        ),
        Number(
            "Figure 4: starts that are not repaid, memory",
            0.421,
            starts,
            _of("tariff", "huawei-functiongraph", "memory_not_repaid_share"),
        ),
        Number(
            "Figure 5: rows of 1 ms and more, of all rows read",
            LONG_ROWS / RAW_ROWS,
            long,
            lambda answer: _share(_of("rule", "100ms", "rows")(answer), _read_rows(table)),
        ),
        Number("Figure 5: added by 100 ms, ms", 77.118, long, _of("rule", "100ms", "mean")),
        Number(
            "Figure 5: added by 1 ms, at least 100 ms",
            61.350,
            long,
            _of("rule", "1ms, at least 100ms", "mean"),
        ),
        Number("Figure 5: added memory, GB-s", 0.02669, long, _of("resource", "memory", "mean")),
        Number("Section 2.5: mean execution, ms", 58.19, every, _of("rule", "100ms", "plain_mean")),
        Number(
            "Section 2.5: mean memory, GB-s",
            0.02746200304839938,
            every,
            _of("resource", "memory", "plain_mean"),
        ),
    ]
    result += [
        Number(
            f"Figure 5: fee of {tariff} at {size}, ms",
            value,
            ("cost", "rounding"),
            _fee(tariff, size),
            of_trace=False,
        )
        for (tariff, size), value in FEES.items()
    ]
    result += [
        Number(
            f"Figure 1, sections 1 and 2.2: {tariff}, {column}",
            value,
            ("cost", "prices"),
            _cell(tariff, column),
            of_trace=False,
        )
        for (tariff, column), value in PRICES.items()
    ]
    return result


def _cell(tariff: str, column: str) -> Callable[[Answer], float | None]:
    return _of("tariff", tariff, column)


def _of(key: str, value: str, column: str) -> Callable[[Answer], float | None]:
    def read(answer: Answer) -> float | None:
        rows = [row for row in answer if row.get(key) == value and row.get(column) is not None]
        return float(rows[0][column]) if rows else None

    return read


def _fee(tariff: str, size: str) -> Callable[[Answer], float | None]:
    def read(answer: Answer) -> float | None:
        rows = [row for row in answer if (row.get("tariff"), row.get("size")) == (tariff, size)]
        return float(rows[0]["fee_ms"]) if rows else None

    return read


def _share(part: float | None, whole: int) -> float | None:
    return None if part is None or not whole else part / whole


def _rows_kept(answer: Answer, table: str) -> float | None:
    rows = _of("tariff", "huawei-functiongraph", "rows")(answer)
    return _share(rows, _read_rows(table))


def _read_rows(table: str) -> int:
    """Rows of the request tables that were read: those of the table, and those rejected."""
    import pyarrow.parquet as pq

    folder = Path(table)
    kept: int = pq.ParquetFile(folder / "invocations.parquet").metadata.num_rows
    rejected = folder / "rejected.csv"
    if not rejected.exists():
        return kept
    with rejected.open(encoding="utf-8", errors="replace") as lines:
        return kept + max(0, sum(1 for _ in lines) - 1)


def uncia(*arguments: str) -> str:
    """Run the command; its standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "uncia", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"uncia {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def main() -> None:
    """Run every command once, and print the table."""
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--rows", type=int, default=2_000_000, help="of the synthetic trace")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--trace", nargs="+", metavar="FOLDER", help="the real one, R1 to R5")
    arguments.add_argument("--prices", action="store_true", help="only what needs no trace")
    arguments.add_argument("--work", type=Path, help="folder for the tables; kept")
    given = arguments.parse_args()
    work = given.work or Path(tempfile.mkdtemp(prefix="uncia-reproduce-"))
    try:
        reproduce(given, work)
    finally:
        if given.work is None:
            shutil.rmtree(work, ignore_errors=True)


def reproduce(given: argparse.Namespace, work: Path) -> None:
    """Make or read the trace, run the commands, print the table."""
    table = str(work / "huawei")
    folders: Sequence[str] = given.trace or []
    if not folders and not given.prices:
        made = work / "synthetic"
        rows, seed = str(given.rows), str(given.seed)
        uncia("trace", "synth", "huawei2025", "--rows", rows, "--seed", seed, "--out", str(made))
        folders = [str(made / region) for region in ("R1", "R2", "R3", "R4", "R5")]
    if folders:
        uncia("trace", "import", "huawei2025", *folders, "--out", table)
    answers: dict[tuple[str, ...], Answer] = {}
    seconds: dict[tuple[str, ...], float] = {}
    obtained = "the trace" if given.trace else f"synthetic, {given.rows:,} rows"
    print(f"| | published | {obtained} | apart | command |")
    print("|---|---:|---:|---:|---|")
    for number in numbers(table):
        if number.of_trace and not folders:
            continue
        if number.command not in answers:
            begin = time.monotonic()
            answers[number.command] = json.loads(uncia(*number.command, "--json"))
            seconds[number.command] = time.monotonic() - begin
        value = number.read(answers[number.command])
        command = "uncia " + " ".join(number.command).replace(table, "huawei")
        print(
            f"| {number.where}{'' if number.of_trace else ' (no trace)'} | {number.published:.6g} |"
            f" {'–' if value is None else f'{value:.6g}'} | {_apart(value, number.published)} |"
            f" `{command}` |"
        )
    print()
    for command, took in seconds.items():
        print(f"* `uncia {' '.join(command).replace(table, 'huawei')}`: {took:.1f} s")


def _apart(value: float | None, published: float) -> str:
    if value is None:
        return "–"
    if not published:
        return "0 %" if not value else "–"
    return f"{(value / published - 1) * 100:+.2f} %"


if __name__ == "__main__":
    main()
