"""What end-to-end tests share: the engine, a state folder, the command as a process."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from patience import scaled

from uncia import cli, engine
from uncia.platforms import server
from uncia.report.checks import CHECK

# How long an example takes says nothing here: machines are noisy.
hypothesis.settings.register_profile("uncia", deadline=None)
hypothesis.settings.load_profile("uncia")

# As the command line does.
gc.set_threshold(50_000)

# A shell tells its background processes to ignore it, and what a test starts inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def slow_machine() -> Iterator[None]:
    """Platforms have more time to start and stop where everything takes longer."""
    with pytest.MonkeyPatch.context() as patched:
        for name in ("_START_TIMEOUT_S", "_STOP_TIMEOUT_S"):
            patched.setattr(server, name, scaled(getattr(server, name)))
        yield


@pytest.fixture(scope="session")
def engine_binary() -> Path:
    """The built engine; without it an end-to-end test fails, because it would test nothing."""
    return engine.binary()


@pytest.fixture
def state_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own, for this process and those it starts."""
    folder = tmp_path / "state-home"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder / "uncia"


Uncia = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def uncia(engine_binary: Path, state_home: Path) -> Uncia:
    """Starts the command ``uncia``; its output is text, nothing of it is a terminal."""
    del state_home

    def start(*arguments: str | Path, cwd: Path | None = None) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "uncia", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, "UNCIA_ENGINE": str(engine_binary), "COLUMNS": "120", CHECK: "1"},
        )

    return start


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line in this process: (exit code, standard output, standard error)."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["uncia", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            cli.main()
        out, err = capsys.readouterr()
        code = exit_.value.code
        return (code if isinstance(code, int) else 0), out, err

    return run
