"""What it takes: a C compiler, QEMU's user mode, valgrind."""

import platform
import shutil

import pytest


@pytest.fixture(scope="session")
def cc() -> None:
    """Skips where nothing can be compiled."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")


@pytest.fixture(scope="session")
def qemu(cc: None) -> str:
    """QEMU's user mode; skips where there is none, or where it runs other programs."""
    del cc
    program = shutil.which("qemu-x86_64")
    if program is None or platform.machine() != "x86_64":
        pytest.skip("branches are traced by qemu-x86_64 on x86_64 (apt-get install qemu-user)")
    return program
