"""An ``uncia serve`` with functions that run, and end badly with errors like markup."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from serving import SOURCES, Serving


@pytest.fixture(scope="module")
def start_serving(
    engine_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Serving]]:
    """Starts ``uncia serve`` with options; what still runs is stopped at the end of the module."""
    started: list[Serving] = []

    def start(*options: str, **environment: str) -> Serving:
        state = tmp_path_factory.mktemp("serve")
        words = ["serve", "--json", "--quiet", "--listen", "127.0.0.1:0", "--state", state / "s"]
        process = subprocess.Popen(
            [sys.executable, "-m", "uncia", *map(str, words), *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "UNCIA_ENGINE": str(engine_binary),
                "XDG_STATE_HOME": str(state),
                **environment,
            },
        )
        started.append(Serving(process))
        return started[-1]

    yield start
    for serving in started:
        if serving.process.poll() is None:
            serving.stop()


@pytest.fixture(scope="module")
def serving(start_serving: Callable[..., Serving]) -> Serving:
    """One for the tests of a module, with two functions and some invocations of each."""
    served = start_serving()
    for name, source in SOURCES.items():
        served.create(name, source)
    served.invoke("works", 5)
    served.invoke("fails", 2)
    return served
