"""`uncia branches` on real functions, what it refuses, and that nothing is left of it."""

import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from patience import scaled

from uncia import locality, record

Command = Callable[..., tuple[int, str, str]]

KEYS = [
    *("function", "predictor", "table_bytes", "instructions", "branches", "mispredicted"),
    *("mpki", "start_share"),
]


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary folders are made where the test sees what is left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def function(folder: Path, code: str) -> str:
    """A function of a folder."""
    folder.mkdir()
    (folder / "handler.py").write_text(code)
    return f"{folder}"


def test_functions_have_a_line_for_each_predictor(
    qemu: str, command: Command, tmp_path: Path, folders: Path
) -> None:
    adds = function(tmp_path / "adds", "def handler(event, context): return sum(range(50_000))\n")
    arguments = ("branches", "hello", adds, "--size", "test", "-n", "2", "--json", "--quiet")
    code, out, err = command(*arguments, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    lines: list[dict[str, Any]] = json.loads(out)
    assert [line["function"] for line in lines] == ["hello"] * 5 + [adds] * 5
    for line in lines:
        assert list(line)[: len(KEYS)] == KEYS
        assert 0 < line["mispredicted"] < line["branches"] < line["instructions"]
        assert line["mpki"] == pytest.approx(1000 * line["mispredicted"] / line["instructions"])
        assert 0.5 < line["start_share"] < 1
        assert line["simulated"] is True
        assert line["warm_mpki"] < line["cold_mpki"]
        assert line["shared_mpki"] > 0
    by_model = {line["predictor"]: line for line in lines[5:]}
    assert by_model["gshare-32KB"]["table_bytes"] == 32 << 10
    assert by_model["tage-32KB"]["mpki"] < by_model["bimodal-32KB"]["mpki"]
    rows = record.read(tmp_path / "out", "locality")
    kept = rows.filter(pc.and_(pc.equal(rows["state"], "kept"), pc.less(rows["part"], 2)))
    mine = kept.filter(
        pc.and_(pc.equal(kept["function"], adds), pc.equal(kept["model"], "gshare-32KB"))
    )
    assert pc.sum(mine["misses"]).as_py() == by_model["gshare-32KB"]["mispredicted"]
    until = mine["until"].to_pylist()
    assert until == sorted(until)
    assert until[-1] == by_model["gshare-32KB"]["instructions"]
    assert pc.max(rows["part"]).as_py() == 2, "the end of the process is no part"
    kept_configuration = json.loads((tmp_path / "out/branches.json").read_text())["configuration"]
    assert kept_configuration["invocations"] == 2
    assert kept_configuration["functions"][adds] == {}
    assert not list(folders.iterdir())


def test_node_is_traced_with_its_jit(
    qemu: str, command: Command, tmp_path: Path, folders: Path
) -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no Node.js")
    out = tmp_path / "out"
    code, text, err = command("branches", "hello@node", "-n", "1", "--out", out, "--quiet")
    assert (code, err) == (0, "")
    assert "tage-32KB" in text
    assert "last: the last invocation, with tables" in text
    assert "hello@node" in text
    assert not list(folders.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nosuch"], "there is no function 'nosuch'"),
        (["hello@cobol"], "cobol"),
        (["hello:nothing=1"], "no parameter 'nothing'"),
        (["hello", "--size", "huge"], "no size 'huge'"),
        (["hello", "--llc", "33MB"], "33MB cannot be simulated"),
        (["hello", "--llc", "2MB", "-n", "2"], "each function is invoked once"),
        (["hello", "--timeout", "soon"], "--timeout"),
        (["hello", "--timeout", "0s"], "--timeout is 0"),
    ],
)
def test_what_cannot_be_traced_is_a_sentence(
    qemu: str, command: Command, folders: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    if "--llc" in arguments and shutil.which("valgrind") is None:
        pytest.skip("there is no valgrind")
    code, out, err = command("branches", *arguments, "--out", tmp_path / "out", "--quiet")
    assert code == 2
    assert out == ""
    assert says in err
    assert not list(folders.iterdir())
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_tracing(
    qemu: str, command: Command, tmp_path: Path, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(*_: object) -> None:
        raise AssertionError("it is traced")

    monkeypatch.setattr(locality, "prepare", prepare)
    (tmp_path / "file").touch()
    for out in (Path("/proc/x"), tmp_path / "file" / "out", tmp_path / "file"):
        code, _, err = command("branches", "hello", "--out", out, "--quiet")
        assert code == 2
        assert f"{out} is there already" in err or f"cannot write to {out}: " in err


def test_what_is_not_there_is_said_before_a_program_is_installed(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "cc").symlink_to("/bin/true")
    (programs / "apt-get").write_text(f"#!/bin/sh\n> {tmp_path}/installed\n")
    (programs / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("CC", raising=False)
    for options in ([], ["--llc", "2MB"]):
        code, _, err = command("branches", "./nosuch", *options, "--out", tmp_path / "out")
        assert code == 2
        assert "there is no folder" in err
    assert [path.name for path in tmp_path.iterdir()].count("installed") == 0


def test_results_are_not_replaced(command: Command, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/locality.parquet").write_bytes(b"mine")
    code, _, err = command("branches", "hello", "--out", tmp_path / "out")
    assert code == 2
    assert "is there already" in err
    assert (tmp_path / "out/locality.parquet").read_bytes() == b"mine"


@pytest.mark.parametrize(
    ("absent", "says"),
    [
        ("qemu-x86_64", "apt-get install qemu-user"),
        ("cc", "there is no C compiler cc"),
        ("valgrind", "apt-get install valgrind"),
    ],
)
def test_a_program_that_is_missing_is_named(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: str, says: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in {"qemu-x86_64", "cc", "valgrind", "sh"} - {absent}:
        (programs / name).symlink_to(shutil.which(name) or "/bin/true")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("CC", raising=False)
    options = ["--llc", "2MB"] if absent == "valgrind" else []
    code, _, err = command("branches", "hello", *options, "--out", tmp_path / "out")
    assert code == 2
    assert says in err


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ValueError('no luck')", "raised ValueError: no luck"),
        ("import os; os._exit(3)", "ended in invocation 1, with exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "in invocation 1, by signal SIGKILL"),
    ],
)
def test_a_function_that_fails_is_a_sentence(
    qemu: str, command: Command, tmp_path: Path, folders: Path, code: str, says: str
) -> None:
    fails = function(tmp_path / "fails", f"def handler(event, context):\n    {code}\n")
    exit_code, _, err = command("branches", fails, "--out", tmp_path / "out", "--quiet")
    assert exit_code == 1
    assert says in err
    assert not list(folders.iterdir())
    assert not (tmp_path / "out").exists()


def test_a_function_that_cannot_be_loaded_is_a_sentence(
    qemu: str, command: Command, tmp_path: Path, folders: Path
) -> None:
    fails = function(tmp_path / "fails", "import nosuchmodule\ndef handler(event, context): ...\n")
    code, _, err = command("branches", fails, "--out", tmp_path / "out", "--quiet")
    assert code == 1
    assert "before it was loaded" in err
    assert "nosuchmodule" in err


@pytest.mark.parametrize("first", ["", "os.closerange(0, 9); "])
def test_a_function_that_takes_too_long_is_ended(
    qemu: str, command: Command, tmp_path: Path, folders: Path, first: str
) -> None:
    waits = function(
        tmp_path / "waits",
        f"import os, time\ndef handler(event, context): {first}time.sleep(999)\n",
    )
    arguments = ("branches", waits, "--timeout", f"{scaled(5):g}s", "--quiet")
    code, _, err = command(*arguments, "--out", tmp_path / "out")
    assert code == 1
    assert "--timeout" in err
    assert not list(folders.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_one_that_is_killed(
    qemu: str,
    uncia: Callable[..., "subprocess.Popen[str]"],
    tmp_path: Path,
    folders: Path,
    number: signal.Signals,
) -> None:
    note = tmp_path / "note"
    waits = function(
        tmp_path / "waits",
        "import os, subprocess, time\n"
        "def handler(event, context):\n"
        "    child = subprocess.Popen(['sleep', '998'])\n"
        f"    open('{note}.partial', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"    os.rename('{note}.partial', '{note}')\n"
        "    time.sleep(999)\n",
    )
    process = uncia("branches", waits, "--out", tmp_path / "out")
    deadline = time.monotonic() + scaled(60)
    while not note.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pids = [int(text) for text in note.read_text().split()]
    process.send_signal(number)
    process.communicate(timeout=scaled(30))
    assert process.returncode in (-number, 128 + number)
    deadline = time.monotonic() + scaled(30)
    while any(running(pid) for pid in pids) or list(folders.iterdir()):
        assert time.monotonic() < deadline, "something is left"
        time.sleep(0.05)


def running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.long
def test_caches_of_two_sizes_are_simulated(command: Command, tmp_path: Path, folders: Path) -> None:
    if shutil.which("valgrind") is None:
        pytest.skip("there is no valgrind")
    arguments = ("branches", "hello", "--json", "--quiet", "--llc", "1MB", "--llc", "20MB")
    code, out, err = command(*arguments, "--out", tmp_path / "out")
    assert (code, err) == (0, "")
    lines = json.loads(out)
    assert [line["cache_bytes"] for line in lines] == [1 << 20, 20 << 20]
    assert [line["model"] for line in lines] == ["cachegrind-1MB", "cachegrind-20MB"]
    for line in lines:
        assert 0 < line["misses"] < line["accesses"] < line["instructions"]
        assert line["simulated"] is True
    assert lines[1]["misses"] < lines[0]["misses"]
    assert lines[0]["accesses"] == pytest.approx(lines[1]["accesses"], rel=0.01)
    rows = record.read(tmp_path / "out", "locality")
    assert rows["part"].to_pylist() == [0, 1, 0, 1]
    assert not list(folders.iterdir())


def test_descriptors_are_not_kept(qemu: str, command: Command, tmp_path: Path) -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    # In its invocation, when all that is traced is open.
    fails = function(tmp_path / "fails", "def handler(event, context): raise ValueError\n")
    code, _, err = command("branches", fails, "--out", tmp_path / "out", "--quiet")
    assert code == 1
    assert "raised ValueError" in err
    assert len(list(descriptors.iterdir())) <= before
