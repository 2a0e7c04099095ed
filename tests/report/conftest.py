from collections.abc import Callable
from pathlib import Path

import pytest
import synthetic_run

from uncia import cli


@pytest.fixture(scope="session")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run folder like the demonstration's."""
    return synthetic_run.write(tmp_path_factory.mktemp("runs") / "demo", synthetic_run.demo())


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
