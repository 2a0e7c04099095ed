"""A run's folder never holds half-made files, and never takes the place of something else."""

from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pytest
from typer.testing import CliRunner

from uncia import cli, record
from uncia.errors import UnciaError
from uncia.platforms.journal import Journal
from uncia.runs.folder import RunFolder, read_run, recover


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_an_earlier_run_is_replaced_only_when_asked(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path / "run", overwrite=False)
    first.write_run({"status": "complete"})
    first.write_text("old", "x")
    with pytest.raises(UnciaError, match="already holds a run"):
        RunFolder.create(tmp_path / "run", overwrite=False)
    assert (tmp_path / "run" / "old").exists()
    RunFolder.create(tmp_path / "run", overwrite=True)
    assert list((tmp_path / "run").iterdir()) == []
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


def test_what_is_no_run_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(UnciaError, match="does not hold a run"):
        RunFolder.create(tmp_path / "photos", overwrite=True)
    with pytest.raises(UnciaError, match="is a file"):
        RunFolder.create(tmp_path / "photos" / "cat.jpg", overwrite=True)
    assert (tmp_path / "photos" / "cat.jpg").exists()


def test_the_folder_of_a_living_run_is_not_replaced(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", overwrite=False).write_run({"status": "running"})
    journal = Journal("run-1", tmp_path / "run")
    try:
        with pytest.raises(UnciaError, match="still going on"):
            RunFolder.create(tmp_path / "run", overwrite=True)
    finally:
        journal.close()
    RunFolder.create(tmp_path / "run", overwrite=True)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnciaError, match="cannot write to"):
        RunFolder.create(tmp_path / "file" / "run", overwrite=False)


def stream(path: Path, experiment: str, count: int, *, cut: int = 0) -> None:
    """An Arrow IPC stream of `count` batches of one row; the last `cut` bytes are missing."""
    schema = record.schema("invocations", 7)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for number in range(count):
            row = {
                "experiment": [experiment],
                "function": ["f"],
                "invocation": [f"{experiment}-{number}"],
                "attempt": [1],
                "outcome": ["ok"],
            }
            writer.write_table(record.conform(pa.table(row), "invocations", 7))
    if cut:
        path.write_bytes(path.read_bytes()[:-cut])


def test_the_parts_of_a_dead_run_become_its_tables(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", overwrite=False)
    folder.write_run({"status": "running", "run": "r"})
    stream(folder.part("invocations", 0, "warm"), "warm", 3)
    stream(folder.part("invocations", 1, "cold"), "cold", 3, cut=30)
    assert record.read(folder.path).num_rows == 5, "a table is read from its parts as well"
    recovered = recover(folder.path)
    assert recovered == {"invocations.000-warm.arrows": 3, "invocations.001-cold.arrows": 2}
    table = record.read(folder.path)
    assert table.column("experiment").to_pylist() == ["warm"] * 3 + ["cold"] * 2
    assert record.epoch_unix_ns(table) == 7
    assert read_run(folder.path)["status"] == "crashed"
    assert sorted(entry.name for entry in folder.path.iterdir()) == [
        "invocations.parquet",
        "run.yaml",
    ]
    assert recover(folder.path) == {}


def test_a_part_with_a_damaged_head_does_not_keep_the_others(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", overwrite=False)
    folder.write_run({"status": "running"})
    stream(folder.part("invocations", 0, "warm"), "warm", 2)
    folder.part("invocations", 1, "cold").write_bytes(b"nothing")
    with pytest.raises(UnciaError, match="001-cold"):
        recover(folder.path)
    assert record.read(folder.path).num_rows == 2


@pytest.mark.parametrize("text", ["", "7", "{status: "])
def test_tables_are_recovered_whatever_the_description_is(tmp_path: Path, text: str) -> None:
    folder = RunFolder.create(tmp_path / "run", overwrite=False)
    stream(folder.part("invocations", 0, "warm"), "warm", 2)
    (folder.path / "run.yaml").write_text(text)
    done = CliRunner().invoke(cli.build("recover"), ["recover", str(folder.path)])
    assert done.exit_code == 0, done.output
    assert "invocations.000-warm.arrows: 2 rows" in done.stdout
    assert "run.yaml is " in done.stderr
    assert (folder.path / "run.yaml").read_text() == text
    assert record.read(folder.path).num_rows == 2
