"""The notebook page does what it says."""

from pathlib import Path

import notebook
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "load-notebook.md"


def test_the_cells_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = notebook.run(PAGE.read_text(encoding="utf-8"))
    assert len(results) >= 8
    assert sum(1 for item, _ in results if item) >= 7
    for number, (item, printed) in enumerate(results, start=1):
        assert notebook.roughly(printed) == notebook.roughly(item), f"cell {number}"


def test_only_what_depends_on_the_machine_is_let_pass() -> None:
    assert notebook.roughly("p50 1.25 ms of 1,000 rows") == "p50 # ms of 1,000 rows"
    assert notebook.roughly("about 12 of 40") == "about # of 40"
    assert notebook.roughly("{'a': 3}\n") == "{'a': 3}"
