"""The command line in the tests' process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from load_helpers import Ended, Inside


@pytest.fixture
def inside(
    command: Callable[..., tuple[int, str, str]], state_home: Path, monkeypatch: pytest.MonkeyPatch
) -> Inside:
    """Runs the command ``uncia`` in this process, where neither signals nor its end matter.

    Importing takes longer than most loads of the tests, and is done here already.
    """
    monkeypatch.setenv("COLUMNS", "120")
    return lambda *arguments: Ended(*command(*arguments))
