"""Machines made of files, so that what this one lacks can be tested too."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from uncia.doctor.host import Host

MakeHost = Callable[[Mapping[str, str]], Host]


@pytest.fixture
def machine(tmp_path: Path) -> MakeHost:
    """``machine({"/proc/stat": text, ...})``: a host that consists of these files."""

    def make(files: Mapping[str, str]) -> Host:
        for path, text in files.items():
            file = tmp_path / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return Host(tmp_path)

    return make
