"""The guide to traces, followed to the letter: a reader is one new file, and its test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from uncia import traces
from uncia.cli import build

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-trace.md"


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """The names of the guide's test, its reader among the traces."""
    reader, test = (
        part.split("```")[0] for part in GUIDE.read_text(encoding="utf-8").split("```python\n")[1:]
    )
    (tmp_path / "readers").mkdir()
    (tmp_path / "readers" / "acme.py").write_text(reader, encoding="utf-8")
    monkeypatch.setattr(traces, "__path__", [*traces.__path__, str(tmp_path / "readers")])
    names: dict[str, object] = {}
    exec(test, names)
    yield names
    sys.modules.pop(f"{traces.__name__}.acme", None)


def test_the_reader_of_the_guide_is_found_by_its_place(
    guide: dict[str, object], tmp_path: Path
) -> None:
    tests = [value for name, value in guide.items() if name.startswith("test_")]
    assert len(tests) == 1
    for test in tests:
        assert callable(test)
        test(tmp_path)
    listed = CliRunner().invoke(build(), ["trace", "list"])
    assert "acme" in listed.output
    out = tmp_path / "again"
    command = ["trace", "import", "auto", str(tmp_path / "acme.csv"), "--out", str(out)]
    done = CliRunner().invoke(build(), command)
    assert done.exit_code == 0, done.output
    assert (out / "invocations.parquet").exists()
    assert CliRunner().invoke(build(), [*command[:-1], str(out / "s"), "--strict"]).exit_code
