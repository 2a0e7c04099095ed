"""Earlier spellings of options are understood; errors in arguments are sentences."""

import subprocess
import sys

import pytest
from typer.main import get_command

from uncia.cli import build
from uncia.cli.spellings import renewed


@pytest.mark.parametrize(
    ("earlier", "present"),
    [
        (["bill", "x", "--engine", "spark"], ["bill", "x", "--backend", "spark"]),
        (["cost", "prices", "--report=p.html"], ["cost", "prices", "--html=p.html"]),
        (["cost", "report", "x", "--out", "p.html"], ["cost", "report", "x", "--html", "p.html"]),
        (
            ["functions", "package", "f", "-o", "f.zip"],
            ["functions", "package", "f", "--out", "f.zip"],
        ),
        (["workload", "import", "w", "--force"], ["workload", "import", "w", "--overwrite"]),
    ],
)
def test_an_earlier_spelling_is_replaced_with_a_warning(
    earlier: list[str], present: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert renewed(get_command(build()), earlier) == present
    assert "warning: -" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "x.yaml", "--out", "folder"],  # It has --out.
        ["bill", "--", "--engine"],
        ["load", "--body", "--engine"],  # Nothing of that name is known.
        ["bil", "x", "--engine", "spark"],
        ["cost"],
        [],
    ],
)
def test_everything_else_stays(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert renewed(get_command(build()), arguments) == arguments
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["bill"], "missing argument 'TABLE...'", "uncia bill --help\n"),
        (["bil"], "no such command 'bil'. Did you mean 'bill'?", "uncia --help\n"),
        (["bill", "--fti"], "no such option: --fti", "uncia bill --help\n"),
        (
            ["cpu", "simulate", "--cpus", "many"],
            "invalid value for '--cpus'",
            "uncia cpu simulate --help",
        ),
    ],
)
def test_errors_in_arguments_are_sentences(arguments: list[str], message: str, hint: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "uncia", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {message}")
    assert f"hint: {hint}" in done.stderr
