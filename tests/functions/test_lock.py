"""From a folder with a handler and its requirements to a bill: what the tutorial shows."""

from __future__ import annotations

import re
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from uncia import functions
from uncia.errors import UnciaError
from uncia.functions.dependencies import check_lock
from uncia.functions.lock import lock, uv
from uncia.paths import data

Uncia = Callable[..., "subprocess.Popen[str]"]
Command = Callable[..., tuple[int, str, str]]

TUTORIAL = data("functions").parent / "docs" / "tutorial" / "first-run.md"


def has_uv() -> bool:
    """Whether uv is installed here."""
    try:
        uv()
    except UnciaError:
        return False
    return True


with_uv = pytest.mark.skipif(not has_uv(), reason="uv is not installed")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the tutorial, below the working folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    text = TUTORIAL.read_text()
    (source,) = re.findall(r"```python\n(import humanize.*?)```", text, re.DOTALL)
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "handler.py").write_text(source)
    (folder / "requirements.txt").write_text("humanize\n")
    return folder


def commands() -> list[list[str]]:
    """The commands of the tutorial's section on a function of one's own."""
    section = TUTORIAL.read_text().split("## 4. A function of yours")[1].split("\n## ")[0]
    return [line.split() for line in re.findall(r"^\$ uncia (.*)$", section, re.MULTILINE)]


@with_uv
def test_three_commands_lead_from_a_handler_to_bills_under_five_providers(
    mine: Path, uncia: Uncia
) -> None:
    assert len(commands()) == 3
    out = ""
    for command in commands():
        process = uncia(*command, cwd=mine.parent)
        out, err = process.communicate(timeout=280)
        assert process.returncode == 0, (command, out, err)
        assert ("Other sizes: uncia cost matrix results/function" in err) == (command[0] == "run")
    bill = commands()[-1]
    tariffs = [bill[index + 1] for index, word in enumerate(bill) if word == "-t"]
    assert len(tariffs) == 5
    for tariff in tariffs:
        (line,) = [line for line in out.splitlines() if line.startswith(tariff)]
        assert re.search(r"\d\.\d+$", line.strip()), line
        # Times differ from machine to machine; how many rows are billed does not.
        quoted = re.search(rf"^{tariff} +(\d+) ", TUTORIAL.read_text(), re.MULTILINE)
        assert quoted is not None, tariff
        assert line.split()[1] == quoted[1], f"{TUTORIAL} bills {quoted[1]} rows: {line}"


@with_uv
def test_a_lock_is_for_a_target_and_kept_if_there_is_no_other(mine: Path) -> None:
    (mine / "requirements.txt").write_text("humanize<4\n")
    (written,) = lock(mine)
    assert written.path == mine / "requirements.lock"
    (pin,) = written.pins
    assert re.fullmatch(r"humanize==3\.[0-9.]+", pin)
    assert check_lock(written.path, ["humanize<4"], mine) == written.path
    before = written.path.read_text()
    assert "http" not in before
    # Without anything else the pins stay; with --upgrade the newest that fit are the same.
    (mine / "requirements.txt").write_text("humanize\n")
    assert [it.pins for it in lock(mine)] == [[pin]]
    assert [it.pins for it in lock(mine, upgrade=True)] != [[pin]]
    (mine / "requirements.txt").write_text("no-such-distribution-of-uncia==1\n")
    kept = written.path.read_text()
    with pytest.raises(UnciaError, match="uv found no versions of no-such-distribution") as caught:
        lock(mine, python_version="3.12", architecture="arm64")
    assert caught.value.exit_code == 1
    assert "Python 3.12 on aarch64" in caught.value.message
    assert written.path.read_text() == kept
    assert sorted(path.name for path in mine.iterdir()) == [
        "handler.py",
        "requirements.lock",
        "requirements.txt",
    ]


def test_a_folder_with_a_handler_is_a_function(mine: Path, command: Command) -> None:
    function = functions.load(mine)
    assert (function.name, function.runtime_names) == ("mine", ["python"])
    assert function.takes_any_event
    assert function.requirements("python") == ["humanize"]
    with pytest.raises(UnciaError, match=r"requirements\.lock is missing") as caught:
        functions.package(mine)
    assert f"uncia functions lock {mine}" in str(caught.value.hint)
    code, _, err = command("run", "./mine", "--dry-run")
    assert code == 2
    assert "requirements.lock is missing" in err
    (mine / "requirements.txt").unlink()
    (mine / "results").mkdir()
    (mine / "results" / "run.yaml").touch()
    with zipfile.ZipFile(functions.package(mine).path) as archive:
        assert "handler.py" in archive.namelist()
        assert not [name for name in archive.namelist() if "run.yaml" in name]
    assert command("run", "./mine", "--dry-run")[0] == 0
    code, _, err = command("functions", "lock", "./mine")
    assert code == 2
    assert "mine requires nothing" in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-r other.txt\n", "requirements.txt:1: -r is no requirement"),
        ("humanize\n./wheel.whl\n", "requirements.txt:2: ./wheel.whl is no requirement"),
    ],
)
def test_requirements_that_are_none_are_refused(text: str, message: str, mine: Path) -> None:
    (mine / "requirements.txt").write_text(text)
    with pytest.raises(UnciaError, match=re.escape(message)):
        functions.load(mine)


def test_handlers_of_other_names_and_none(tmp_path: Path) -> None:
    for name, text, runtime, handler in (
        ("lambda_function.py", "def lambda_handler(e, c): ...\n", "python", None),
        ("index.mjs", "export const handler = () => 1;\n", "node", "index.handler"),
        ("handler.rb", "def handler(event:, context:) = 1\n", "ruby", "handler.handler"),
    ):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text(text)
        function = functions.load(folder)
        assert function.runtime_names == [runtime]
        assert functions.check(function) is None
        if handler:
            assert getattr(function.runtimes, runtime).handler == handler
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnciaError, match=r"no function\.yaml, and no lambda_function\.py or"):
        functions.load(tmp_path / "empty")
