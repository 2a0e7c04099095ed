"""The laboratory's commands on the real platform, with as few requests as show what they do."""

import json
import signal
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from run_helpers import Uncia, description, finish, left_behind, rows, sending, status, wait_until
from typer.testing import CliRunner

from uncia import record, yamlio
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.experiment import checks

pytestmark = pytest.mark.usefixtures("engine_binary")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def answer(*arguments: str | Path) -> dict[str, Any]:
    """What a command of `uncia cpu` with --json says."""
    ended = CliRunner().invoke(build(), ["cpu", *map(str, arguments), "--json", "--quiet"])
    assert ended.exit_code == 0, (ended.output, ended.exception)
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def test_a_task_in_bursts(folder: Path, state_home: Path) -> None:
    settings = ("--memory", "512MB", "--cpu-time", "20ms", "--repeat", "2")
    result = answer("intermittent", *settings, "--out", folder)
    assert status(folder) == "complete"
    assert left_behind(state_home) == []
    assert (folder / "report.html").exists()
    assert (folder / "intermittent.html").exists()
    assert (result["tasks"], result["memory_mb"], result["problems"]) == (2, 512, [])

    table = rows(folder)
    assert {row["outcome"] for row in table} == {"ok"}
    selected = [row for row in table if row["experiment"] == "tasks"]
    selected.sort(key=lambda row: int(row["sent"]))  # type: ignore[call-overload]
    count = result["bursts"]
    bursts = [f"{number + 1}-of-{count}" for number in range(count)]
    assert [row["stage"] for row in selected] == ["long", *bursts] * 2
    # A burst goes on from the one before, of the same task, a period or more later.
    for before, row in pairwise(selected):
        follows = row["stage"] != "long"
        assert row["parent"] == (before["invocation"] if follows else None)
        assert int(row["sent"]) - int(before["received"]) >= 20_000_000  # type: ignore[call-overload]
    # What was measured is the platform's, joined to the client's rows.
    assert all(row["execution"] and row["cpu_user"] is not None for row in selected)
    # run.yaml tells what each request did, in frames that were counted for this machine; its file
    # can be carried out again.
    output = description(folder)
    assert list(output["experiments"]) == ["empty.warmup", "empty", "sample", "tasks"]  # type: ignore[call-overload]
    stages = output["file"]["chains"]["tasks"]["stages"]  # type: ignore[index]
    frames = [stages[name]["parameters"]["frames"] for name in ("long", *bursts)]
    assert frames[0] == sum(frames[1:])
    assert checks.check(yamlio.load(yamlio.dump(output["file"]))).name == "intermittent"  # type: ignore[arg-type]

    aws = result["tariffs"][0]
    assert aws["tariff"] == "aws-lambda-x86"
    assert aws["bursts"]["fees_usd"] == pytest.approx(2e-7 * result["bursts"])
    assert answer("intermittent", "--run", folder) == result


def test_what_cannot_be_measured_is_refused_before_anything_starts(folder: Path) -> None:
    for options, words in (
        (("--memory", "1769MB"), "a whole vCPU"),
        (("--memory", "128MB", "--period", "5ms"), "smallest quota is 1ms"),
        (("--bursts", "many"), "neither auto nor a number"),
        (("--cpu-time", "200"), "--cpu-time"),
    ):
        ended = CliRunner().invoke(build(), ["cpu", "intermittent", *options, "--out", str(folder)])
        assert isinstance(ended.exception, UnciaError)
        assert words in ended.exception.message
        assert not folder.exists(), "nothing was begun"


def test_ctrl_c_keeps_what_was_measured_and_leaves_nothing(
    uncia: Uncia, folder: Path, state_home: Path
) -> None:
    process = uncia(
        "cpu", "intermittent", "--memory", "512MB", "--cpu-time", "20ms", "--out", folder, "--quiet"
    )

    wait_until(sending(folder, "tasks"), process)
    process.send_signal(signal.SIGINT)
    ended = finish(process)
    assert ended.code == 130, ended.err
    assert status(folder) == "interrupted"
    assert left_behind(state_home) == []
    assert {"empty", "sample", "tasks"} <= {row["experiment"] for row in rows(folder)}


def test_sizes_against_models(folder: Path, state_home: Path) -> None:
    settings = ("--memory", "442MB,1769MB", "--samples", "2")
    result = answer("overallocation", *settings, "--out", folder)
    assert status(folder) == "complete"
    assert left_behind(state_home) == []
    assert (folder / "overallocation.html").exists()
    small, whole = result["sizes"]
    assert (small["memory_mb"], small["rows"]) == (442, 2)
    assert (whole["vcpu"], whole["rows"]) == (1.0, 8)
    assert set(result["mape"]["kernel"]) == {"reciprocal", "Equation (2)", "simulated kernel"}
    assert small["cpu_ms"] > 0
    # Every figure is of the rows.
    selected = [
        row for row in rows(folder) if row["experiment"] == "sizes" and row["stage"] == "at-442"
    ]
    mean = sum(int(row["execution"]) for row in selected) / len(selected) / 1e6  # type: ignore[call-overload]
    assert small["mean_ms"] == pytest.approx(mean)


def test_work_in_keep_alive(folder: Path, state_home: Path) -> None:
    settings = ("--memory", "1024MB", "--idle", "500ms", "--repeat", "1", "--pause-after", "1ms")
    result = answer("background", *settings, "--out", folder)
    assert status(folder) == "complete"
    assert left_behind(state_home) == []
    assert (folder / "background.html").exists()
    by_name = {item["keep_alive_cpu"]: item for item in result["behaviours"]}
    assert list(by_name) == ["freeze", "scale-down", "run"]
    assert all(item["idle_s"] >= 0.5 for item in by_name.values())
    # A frozen instance does nothing; one that runs as usual has what it pays for in requests.
    assert by_name["run"]["unbilled_cpu_s"] > by_name["freeze"]["unbilled_cpu_s"] >= 0
    table = [row for row in rows(folder) if row["experiment"] in by_name]
    assert [row["stage"] for row in table] == ["start", "collect"] * 3
    collects = {row["invocation"] for row in table if row["stage"] == "collect"}
    spans = record.read(folder, "spans").to_pylist()
    of_function = [span for span in spans if span["clock"] == "function"]
    kinds = Counter(span["name"] for span in of_function if span["invocation"] in collects)
    assert kinds == {"handler": 3, "background": 3, "background_cpu": 3}
