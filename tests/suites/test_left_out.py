"""Suites on a platform that is named: what it cannot serve is told before anything is run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from uncia.suites import catalogue, left_out
from uncia.suites.target import Target

Command = Callable[..., tuple[int, str, str]]

SUITE = "faasprofiler"


@pytest.fixture(autouse=True)
def _no_openwhisk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None is named, so that what is tried ends at once."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("__OW_API_HOST", "__OW_API_KEY", "WSK_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_a_platform_that_serves_nothing_is_refused_with_each_run(
    command: Command, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("suite", "run", SUITE, "--quick", "--only", "burst,cold", "--out", out)
    code, _, err = command(*words, "--platform", "http")
    assert code == 2
    for run in ("burst", "cold"):
        assert f"{run}/only: no URL is known for " in err
        assert f"give it in the file of --urls as {run}." in err
    assert "without --platform" in err
    assert not out.exists()


def test_runs_that_a_platform_does_not_serve_are_told_before_the_first(
    command: Command, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("suite", "run", SUITE, "--quick", "--only", "cold,burst", "--out", out)
    code, _, err = command(*words, "--platform", "openwhisk")
    assert code == 1
    first, second, third, *rest = err.splitlines()
    assert first.startswith("burst/only: the platform openwhisk cannot serve it: ")
    assert "keep_alive: the platform openwhisk has no such setting (allowed: " in first
    assert first.endswith("; left out.")
    assert second == left_out.WHAT_TO_DO
    assert third.endswith("cold/only.")
    # The run that was tried says what is wrong, and what to do.
    (failed,) = [line for line in rest if line.startswith("Failed: ")]
    assert failed.startswith("Failed: cold/only: no OpenWhisk is named. Give the platform its host")
    assert not (out / "burst").exists()
    findings = json.loads((out / "claims.json").read_text())
    (why,) = [it["why"] for it in findings if it["id"] == "burst.starts"]
    assert "the platform openwhisk cannot serve it" in why


def test_a_platform_that_serves_all_of_a_file_leaves_nothing_out() -> None:
    entry = catalogue.find(SUITE).entries["cold"]
    for kind in (None, "embedded", "openwhisk"):
        assert left_out.lacks(entry, "only", Target(kind)) == ""
    (names,) = entry.experiments.values()
    assert left_out.lacks_by_experiment(entry, "only", Target("http")).keys() == set(names)
    assert all(left_out.lacks_by_experiment(entry, "only", Target("http")).values())
