"""``uncia doctor`` as a person calls it."""

import json

import pytest
from typer.testing import CliRunner

from uncia.cli import build
from uncia.doctor.programs import program_checks


def test_it_prints_every_check() -> None:
    result = CliRunner().invoke(build(), ["doctor", "--seconds", "0"])
    assert result.exit_code == 0, result.output
    for name in ("system", "engine", "runtime-python", "cpus"):
        assert name in result.output
    assert "as they should be" in result.output


def test_it_prints_json() -> None:
    result = CliRunner().invoke(build(), ["doctor", "--json", "--seconds", "0.05"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert {"id", "status", "finding", "consequence", "remedy"} == set(report["checks"][0])
    assert {check["status"] for check in report["checks"]} <= {"ok", "warn", "missing"}
    assert report["machine"]["noise"]["duration_s"] == 0.05


def test_sentences_of_what_is_missing_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.setenv("PATH", "/nowhere")
    (branches,) = (check for check in program_checks() if check.id == "branches")
    assert branches.remedy.startswith("Run the command on such a machine. Install it: apt-get")
    assert ".." not in branches.remedy + branches.finding


def test_a_negative_time_is_refused() -> None:
    result = CliRunner().invoke(build(), ["doctor", "--seconds", "-1"])
    assert result.exit_code == 2
