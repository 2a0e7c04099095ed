"""Tests over time: in `make test` the short form, in `make soak` the long one (``--soak``)."""

import os
import time
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="as long as `make soak` takes")
    parser.addoption("--soak-seed", type=int, help="of what is random in the tests of tests/soak")


@pytest.fixture
def long(request: pytest.FixtureRequest) -> bool:
    """Whether the long form is asked for."""
    return bool(request.config.getoption("soak", False))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Named in the output, so that a failure can be repeated as far as the machine lets it."""
    chosen = request.config.getoption("soak_seed", None)
    return time.time_ns() % 1_000_000 if chosen is None else int(chosen)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    if os.getuid() != 0:
        pytest.skip("checks cgroups and other users' processes, which takes root")
    return tmp_path / "state"
