from pathlib import Path

import pytest
import synthetic_run
from chart_check import charts_are_valid

__all__ = ["charts_are_valid"]


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run folder like the demonstration's."""
    return synthetic_run.write(tmp_path_factory.mktemp("runs") / "demo", synthetic_run.demo())
