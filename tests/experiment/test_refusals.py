"""What a run refuses before it starts: with file and line, and all of it at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Command = Callable[..., tuple[int, str, str]]

FILE = """\
name: sample
platform: {kind: embedded}
functions:
  f:
    source: ./f
experiments:
  warm:
    function: f
    arrivals: {kind: constant, rate: 5/s, duration: 1s}
"""

FORM = """\
name: f
description: Answers.
runtimes:
  python: {handler: handler.handler}
parameters: {}
sizes: {test: {}, small: {}, large: {}}
answer: {text: Anything.}
memory: 256MB
timeout: 3s
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an experiment file and its function."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f" / "python").mkdir(parents=True)
    (tmp_path / "f" / "function.yaml").write_text(FORM)
    (tmp_path / "f" / "python" / "handler.py").write_text("def handler(event, context): ...\n")
    (tmp_path / "e.yaml").write_text(FILE)
    return tmp_path


def refused(command: Command, *arguments: str) -> str:
    """The error of both a dry run and a run, which must be the same and leave nothing."""
    code, _, dry = command("run", "e.yaml", "--dry-run", *arguments)
    assert code == 2, dry
    code, _, err = command("run", "e.yaml", *arguments)
    assert (code, err) == (2, dry)
    assert not Path("results").exists()
    return err


def write(name: str, text: str, *changes: tuple[str, str]) -> None:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    Path(name).write_text(text)


def test_a_seed_is_one_unless_said(folder: Path, command: Command) -> None:
    from uncia.experiment import files

    file, _ = files.load(folder / "e.yaml")
    assert file.seed == 1
    assert command("run", "e.yaml", "--dry-run")[0] == 0


def test_settings_off_the_platforms_steps_are_told_with_their_lines(
    folder: Path, command: Command
) -> None:
    del folder
    write(
        "e.yaml",
        FILE,
        (
            "    source: ./f\n",
            "    source: ./f\n    memory: 50MB\n    timeout: 1500ms\n"
            "    environment: {A: b}\n    keep_alive: 1500us\n",
        ),
        ("    function: f\n", "    function: f\n    settings: {memory: 128.5MB}\n"),
    )
    err = refused(command)
    assert "e.yaml:6: functions.f.memory: 50MB is not between 128MB and 10,240MB" in err
    assert "e.yaml:7: functions.f.timeout: 1500ms is not a whole number of seconds" in err
    assert "e.yaml:8: functions.f.environment: 'A' is no name of a variable" in err
    assert "e.yaml:9: functions.f.keep_alive: 1500us is not a whole number of milliseconds" in err
    assert "e.yaml:13: experiments.warm.settings.memory: 131584KB is not a whole number of M" in err


def test_sizes_of_a_sweep_and_of_a_function_s_own_file(folder: Path, command: Command) -> None:
    write("e.yaml", FILE, ("    arrivals", "    sweep: {memory: [128MB, 64MB]}\n    arrivals"))
    assert "e.yaml:9: experiments.warm.sweep.memory: 64MB is not between" in refused(command)
    write("e.yaml", FILE)
    write(str(folder / "f" / "function.yaml"), FORM, ("256MB", "50MB"))
    err = refused(command)
    assert "e.yaml:5: functions.f.source: its memory of 50MB is not between 128MB" in err
    assert "function.yaml" in err


def test_a_missing_lock_and_a_missing_handler(folder: Path, command: Command) -> None:
    form = folder / "f" / "function.yaml"
    write(str(form), FORM, ("handler.handler}", "handler.handler, requirements: [humanize]}"))
    err = refused(command)
    assert "e.yaml:5: functions.f.source: " in err
    assert "python/requirements.txt is missing" in err
    assert f"`uncia functions lock {folder / 'f'}` writes it." in err
    form.write_text(FORM)
    (folder / "f" / "python" / "handler.py").write_text("def other(event, context): ...\n")
    assert "defines no handler" in refused(command)
    write("e.yaml", FILE, ("./f\n", "./f\n    handler: handler.another\n"))
    assert "the handler handler.another is missing" in refused(command)
    write("e.yaml", FILE, ("./f\n", "./f\n    handler: other\n"))
    assert "'other' is not a handler" in refused(command)


def test_all_that_is_wrong_is_told_at_once(folder: Path, command: Command) -> None:
    del folder
    Path("e.yaml").write_text("name: x\n")
    err = refused(command)
    for key in ("platform", "functions", "experiments"):
        assert f"the key {key} is missing" in err
    write(
        "e.yaml",
        FILE,
        ("  f:\n", "  g: {source: ./nowhere}\n  h: {source: ./f, runtime: ruby}\n  f:\n"),
    )
    err = refused(command)
    assert "e.yaml:4: functions.g.source: there is no folder" in err
    assert "e.yaml:5: functions.h.runtime: f does not exist in 'ruby'" in err
    write("e.yaml", FILE, ("function: f", "function: g"))
    with Path("e.yaml").open("a") as file:
        file.write("  two: {function: h, arrivals: {kind: constant, rate: 1/s, duration: 1s}}\n")
    err = refused(command)
    assert "there is no function 'g'" in err
    assert "there is no function 'h'" in err


def test_a_taken_folder_and_platform_settings(folder: Path, command: Command) -> None:
    (folder / "taken").mkdir()
    (folder / "taken" / "mine.txt").touch()
    assert "taken is not empty and does not hold a run" in refused(command, "--out", "taken")
    assert (folder / "taken" / "mine.txt").exists()
    write("e.yaml", FILE, ("{kind: embedded}", "{kind: embedded, stop_grace: 1500us}"))
    assert "e.yaml:2: platform: stop_grace: 1500us is not a whole number" in refused(command)


def test_vcpu_is_what_a_platform_elsewhere_has(folder: Path, command: Command) -> None:
    del folder
    write("e.yaml", FILE, ("./f\n", "./f\n    vcpu: 0.5\n"))
    assert "functions.f.vcpu: the platform embedded has no such setting" in refused(command)
