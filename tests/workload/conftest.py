"""Fixtures of the tests of workload files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes an original, with some keys changed, and gives its path."""

    def write(base: dict[str, Any], **changes: Any) -> Path:
        path = tmp_path / "original.json"
        path.write_text(json.dumps({**base, **changes}, indent="\t"))
        return path

    return write
