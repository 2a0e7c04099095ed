"""The commands `uncia bill` and `uncia tariffs`, run as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tariff_rows import row, table

import uncia
from uncia import record
from uncia.errors import UnciaError
from uncia.tariffs import bill, ids
from uncia.tariffs.catalogue import is_model

DATA = Path(__file__).resolve().parents[1] / "data" / "tariffs"


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """No terminal, and no table folded."""
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("TERM", "dumb")


def in_a_process(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own, with this package on its path."""
    source = str(Path(uncia.__file__).resolve().parents[1])
    return subprocess.run(
        [sys.executable, "-m", "uncia", *(str(argument) for argument in arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": source},
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder: two experiments, a throttled row, a row without average memory."""
    rows = [
        row(invocation="a", experiment="warm", function="hello"),
        row(invocation="b", experiment="warm", function="hello", memory_avg=None),
        row(invocation="c", experiment="burst", function="spin"),
        row(invocation="d", experiment="burst", outcome="throttled", execution=None),
    ]
    data = table(rows).append_column("attempt", pa.array([1] * len(rows), pa.int64()))
    folder = tmp_path_factory.mktemp("runs") / "demo"
    folder.mkdir()
    record.write(record.conform(data, "invocations", epoch=0), folder / "invocations.parquet")
    return folder


def test_bill_prints_every_tariff_and_what_is_left_out(run: Path) -> None:
    done = in_a_process("bill", run)
    assert done.returncode == 0, done.stderr
    lines = bill(run)
    assert all(line.tariff in done.stdout for line in lines)
    assert "Not billed by any platform, of 4 rows: 1 row (throttled)." in done.stdout
    assert "Not in the bill of azure-consumption, spfu: 1 row (memory_avg is null)." in done.stdout
    assert "USD a million" in done.stdout
    first = [line.split()[0] for line in done.stdout.splitlines() if line.split()]
    # Models that nobody sells by head no ranking.
    order = sorted(lines, key=lambda line: (is_model(line.tariff), _cost(line)))
    cheapest = [line.tariff for line in order]
    assert [word for word in first if word in cheapest] == cheapest


def _cost(line: uncia.tariffs.Line) -> tuple[Fraction, str]:
    assert line.cost_usd_per_million is not None
    return line.cost_usd_per_million, line.tariff


def test_bill_as_json_is_exact(command: Command, run: Path) -> None:
    code, out, err = command("bill", run, "--tariff", "aws-lambda-x86", "-t", "spfu", "--json")
    assert (code, err) == (0, "")
    entries = json.loads(out)
    assert [entry["tariff"] for entry in entries] == ["aws-lambda-x86", "spfu"]
    (line, _) = bill(run, ["aws-lambda-x86", "spfu"])
    assert entries[0]["rows"] == 3
    assert entries[0]["total_rows"] == 4
    assert Decimal(entries[0]["cost_usd"]) == line.cost_usd
    assert int(entries[0]["billable_byte_ns"]) == line.billable_byte_ns
    assert entries[0]["not_billable"] == {"throttled": 1}
    assert entries[1]["unpriced"] == {"memory_avg is null": 1}


def test_bill_by_experiment_and_function(command: Command, run: Path) -> None:
    _, out, _ = command(
        "bill", run, "-t", "slim", "--by", "experiment", "--by", "function", "--json"
    )
    groups = [(item["experiment"], item["function"], item["rows"]) for item in json.loads(out)]
    assert groups == [("burst", "f", 0), ("burst", "spin", 1), ("warm", "hello", 2)]
    _, shown, _ = command("bill", run, "-t", "slim", "--by", "experiment")
    assert "experiment burst" in shown
    assert "experiment warm" in shown


def test_bill_takes_a_file_of_ones_own(command: Command, run: Path) -> None:
    code, out, err = command("bill", run, "-t", DATA / "own-cloud.yaml", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)[0]["tariff"] == "own-cloud"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "gcp-run-instance"], "bills the time that instances exist"),
        (["-t", "slim", "spfu"], "Write --tariff before each tariff: --tariff spfu"),
        (["-t", "npfu"], "no public price is known"),
        (["-t", "slimm"], "there is no tariff 'slimm'"),
        (["-t", "none.yaml"], "none.yaml: there is no such file"),
        (["--by", "colour"], "colour"),
    ],
)
def test_bill_refuses_in_a_sentence(
    command: Command, run: Path, arguments: list[str], message: str
) -> None:
    code, _, err = command("bill", run, *arguments)
    assert code == 2
    assert message in err


def test_bill_of_a_folder_that_is_no_run(command: Command, tmp_path: Path) -> None:
    code, _, err = command("bill", tmp_path)
    assert code == 2
    assert "is not the folder of a run" in err
    assert "Traceback" not in err


def test_tariffs_list_has_all(command: Command) -> None:
    done = in_a_process("tariffs", "list")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ids())
    entries = json.loads(command("tariffs", "list", "--json")[1])
    assert [entry["id"] for entry in entries] == list(ids())


def test_tariffs_show_names_prices_and_sources(command: Command) -> None:
    code, out, _ = command("tariffs", "show", "aws-lambda-x86")
    assert code == 0
    for words in ("0.0000166667 per GB-second", "turnaround, in steps of 1ms", "[pricing]"):
        assert words in out
    assert "https://aws.amazon.com/lambda/pricing/" in out
    assert command("tariffs", "show", "aws")[0] == 2


def test_every_tariff_can_be_shown() -> None:
    from typer.testing import CliRunner

    from uncia.cli import build

    for name in ids():
        shown = CliRunner().invoke(build(), ["tariffs", "show", name])
        assert shown.exit_code == 0, name
        assert name in shown.output


def test_tariffs_show_yaml_can_be_changed_and_checked(command: Command, tmp_path: Path) -> None:
    _, text, _ = command("tariffs", "show", "npfu", "--yaml")
    selected = tmp_path / "npfu-mine.yaml"
    selected.write_text(text.replace("price: null", 'price: "0.000001"'), encoding="utf-8")
    code, out, err = command("tariffs", "check", selected)
    assert (code, err) == (0, "")
    assert "npfu is a well-formed tariff" in out


def test_tariffs_check_gives_a_figure_to_compare(command: Command) -> None:
    _, out, _ = command("tariffs", "check", DATA / "own-cloud.yaml")
    # 0.1 s x 1 vCPU x 0.00002 + 0.175 GB-s (1792 MB) x 0.000002 + the fee, a million times.
    assert "cost 2.45 USD" in out


def test_tariffs_check_tells_all_mistakes_of_all_files(command: Command, tmp_path: Path) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    good = (DATA / "own-cloud.yaml").read_text(encoding="utf-8")
    first.write_text(good.replace('price: "0.00002"', "price: 0.00002"), encoding="utf-8")
    second.write_text(good.replace("kind: turnaround", "kind: turnarond"), encoding="utf-8")
    code, out, err = command("tariffs", "check", first, DATA / "own-cloud.yaml", second)
    assert code == 2
    assert f"{first}:27: charges[0].price: a price is decimal text in quotes" in err
    assert f"{second}:19: time.kind: 'turnarond' is not known, did you mean" in err
    assert "own-cloud is a well-formed tariff" in out


@pytest.fixture
def bracketed(tmp_path: Path) -> Path:
    """A run whose functions look like the markup of terminals."""
    names = ["x[/y]", "[bold]loud[/]", ":smile:"]
    rows = [row(invocation=name, function=name) for name in names]
    data = table(rows).append_column("attempt", pa.array([1] * len(rows), pa.int64()))
    folder = tmp_path / "run"
    folder.mkdir()
    record.write(record.conform(data, "invocations", epoch=0), folder / "invocations.parquet")
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("bill", "--by", "function"),
        ("cost", "decompose", "--by", "function", "-t", "aws-lambda-x86"),
        ("cost", "inflation", "--by", "function"),
    ],
)
def test_names_with_brackets_are_shown_as_they_are(
    command: Command, bracketed: Path, arguments: tuple[str, ...]
) -> None:
    code, out, err = command(*arguments, bracketed)
    assert code == 0, err
    for name in ("x[/y]", "[bold]loud[/]", ":smile:"):
        assert name in out


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("arguments", [("tariffs", "list"), ("tariffs", "list", "--json")])
def test_output_that_cannot_be_written_ends_in_a_sentence(arguments: tuple[str, ...]) -> None:
    source = str(Path(uncia.__file__).resolve().parents[1])
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "uncia", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
            env=os.environ | {"PYTHONPATH": source},
        )
    assert ended.returncode == 1
    assert ended.stderr == "error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("schema", "tariff"), ("tariffs", "show", "spfu", "--yaml"), ("bill",)],
)
def test_a_reader_that_left_is_no_error_to_be_shown(
    bracketed: Path, arguments: tuple[str, ...]
) -> None:
    if arguments == ("bill",):
        arguments = ("bill", str(bracketed), "--tariff", "spfu", "--json")
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "uncia", *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
            env=os.environ | {"PYTHONPATH": str(Path(uncia.__file__).resolve().parents[1])},
        )
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.parametrize(("days", "noted"), [(14, "14 days"), (30, None), (62, "62 days")])
def test_a_free_tier_of_a_month_says_how_long_rows_span(
    command: Command, tmp_path: Path, days: int, noted: str | None
) -> None:
    file = tmp_path / "rows.parquet"
    started = pa.array([5, 5 + days * 24 * 3600 * 10**9], pa.int64())
    pq.write_table(table([row(), row()]).append_column("started", started), file)
    code, _, err = command("bill", file, "-t", "aws-lambda-x86", "--free-tier", "--json")
    assert code == 0, err
    if noted is None:
        assert "began within" not in err
    else:
        assert f"note: The rows began within {noted}" in err


def test_groups_that_are_no_text_are_refused_with_their_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    lists = pa.array([["f"]], pa.list_(pa.utf8()))
    pq.write_table(table([row()]).drop_columns(["function"]).append_column("function", lists), file)
    with pytest.raises(UnciaError, match=r"rows\.parquet: the column function is array<string>"):
        bill(file, ["aws-lambda-x86"], ["function"])
