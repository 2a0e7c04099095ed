"""What a shell is told of a command line that is not yet whole."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from uncia.suites import catalogue as suites
from uncia.tariffs import catalogue as tariffs


def completed(line: str) -> list[str]:
    """What continues the last word, as bash asks for it."""
    done = subprocess.run(
        [sys.executable, "-m", "uncia"],
        env={
            **os.environ,
            "_UNCIA_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("uncia trace import az", ["azure2019", "azure2021"]),
        ("uncia schema s", ["simulation", "suite"]),
        ("uncia suite run ", list(suites.names())),
        ("uncia bill --fit ", ["allocated", "used-peak", "paper"]),
        ("uncia cost matrix --backend d", ["duckdb"]),
        ("uncia tariffs show ", list(tariffs.ids())),
        ("uncia serve --tariff aws-lambda", ["aws-lambda-arm", "aws-lambda-x86"]),
    ],
)
def test_values_that_are_known_are_completed(line: str, words: list[str]) -> None:
    assert completed(line) == words
