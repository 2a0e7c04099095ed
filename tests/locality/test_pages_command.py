"""What docs/how-to/trace-branches.md shows."""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

PAGE = Path(__file__).parents[2] / "docs/how-to/trace-branches.md"


def blocks(language: str) -> list[str]:
    return re.findall(
        rf"<!-- run by: .*? -->\n```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL
    )


def test_the_page_traces_functions_and_draws_their_course(
    qemu: str,
    command: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ((line,), (query,)) = blocks("console"), blocks("sql")
    code, _, err = command(*shlex.split(line)[1:])
    assert code == 0, err
    assert os.listdir("traced")  # noqa: PTH208
    rows = duckdb.connect().execute(query).fetchall()
    assert len(rows) > 20
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    assert 1 < rows[-1][1] < 30
