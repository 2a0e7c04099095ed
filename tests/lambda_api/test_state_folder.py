"""The state folder: who may look into it, and what is damaged in it."""

import ctypes
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest
from botocore.exceptions import ClientError
from patience import scaled

from uncia.platforms import inquiries

from .conftest import OK, Platform, Serve, cgroups, package

# What a platform makes of its folder is tested here.
BARE = True

MS_RDONLY, MS_REMOUNT, MS_BIND = 1, 32, 4096


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refusal(binary: Path, state: Path) -> str:
    """What the engine says when it cannot start on this folder."""
    ended = subprocess.run(
        [str(binary), "serve", "--listen", "127.0.0.1:0", "--state", str(state)],
        capture_output=True,
        timeout=scaled(60),
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    assert ended.stdout == ""
    return ended.stderr


def test_clean_removes_the_groups_of_a_platform_whose_folder_is_gone(
    serve: Serve, uncia: "Callable[..., subprocess.Popen[str]]"
) -> None:
    def clean(*options: str) -> str:
        process = uncia("clean", *options)
        output, _ = process.communicate(timeout=scaled(120))
        return output

    lives, dead = serve(state="lives"), serve(state="dead")
    for platform in (lives, dead):
        platform.create("f")
        platform.invoke("f")
    left = cgroups(dead.state)
    if not left:
        pytest.skip("no control groups that this process may make")
    dead.process.kill()
    dead.process.wait()
    shutil.rmtree(dead.state)
    message = clean("--dry-run")
    assert all(str(group) in message for group in left)
    assert not any(str(group) in message for group in cgroups(lives.state))
    clean()
    assert cgroups(dead.state) == []
    assert lives.invoke("f")[0]["StatusCode"] == 200


@pytest.mark.parametrize("umask", [0o027, 0o077])
def test_functions_run_and_others_see_nothing_under_any_umask(serve: Serve, umask: int) -> None:
    before = os.umask(umask)
    try:
        platform = serve()
    finally:
        os.umask(before)
    source = {"handler.py": "import deep.inner\nhandler = deep.inner.handler\n"}
    platform.create("f", source | {"deep/inner.py": OK})
    assert platform.invoke("f", {"n": 1})[1] == {"got": {"n": 1}}
    state = platform.state
    assert mode(state) == 0o711
    for private in ("packages", "staging"):
        assert mode(state / private) == 0o700
    for file in ("lock", "registry.sqlite", "meter.sqlite", "meter.sqlite-wal"):
        assert mode(state / file) == 0o600


def test_a_lost_package_breaks_one_function_until_its_code_is_updated(serve: Serve) -> None:
    first = serve()
    first.create("lost")
    first.create("fine", "def handler(event, context):\n    return 'fine'\n")
    first.client.create_function_url_config(FunctionName="lost", AuthType="NONE")
    assert first.stop() == 0
    digest = package(OK)
    (result,) = [zip for zip in (first.state / "packages").iterdir() if zip.read_bytes() == digest]
    result.unlink()
    second = serve()
    assert second.invoke("fine")[1] == "fine"
    configuration = second.client.get_function(FunctionName="lost")["Configuration"]
    assert configuration["State"] == "Failed"
    assert str(result) in configuration["StateReason"]
    for kind in ("RequestResponse", "Event"):
        with pytest.raises(ClientError, match=result.name):
            second.invoke("lost", InvocationType=kind)
    url = second.client.get_function_url_config(FunctionName="lost")["FunctionUrl"]
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(url)
    second.client.update_function_code(FunctionName="lost", ZipFile=package(OK))
    assert second.invoke("lost", {"n": 1})[1] == {"got": {"n": 1}}
    state = second.client.get_function(FunctionName="lost")["Configuration"]["State"]
    assert state == "Active"


def test_a_damaged_configuration_breaks_one_function_until_it_is_deleted(serve: Serve) -> None:
    first = serve()
    first.create("damaged")
    first.create("fine")
    assert first.stop() == 0
    with sqlite3.connect(first.state / "registry.sqlite") as database:
        database.execute("UPDATE functions SET configuration = '{' WHERE name = 'damaged'")
    database.close()
    second = serve()
    assert second.invoke("fine", {"n": 1})[1] == {"got": {"n": 1}}
    with pytest.raises(ClientError, match="delete the function and create it again"):
        second.invoke("damaged")
    with pytest.raises(ClientError, match="delete the function and create it again"):
        second.client.update_function_code(FunctionName="damaged", ZipFile=package(OK))
    second.client.delete_function(FunctionName="damaged")
    second.create("damaged")
    assert second.invoke("damaged", {"n": 1})[1] == {"got": {"n": 1}}


@pytest.mark.parametrize("name", ["registry.sqlite", "meter.sqlite"])
def test_foreign_and_torn_databases_are_sentences(
    serve: Serve, engine_binary: Path, name: str
) -> None:
    platform = serve()
    platform.create("f")
    platform.invoke("f")
    assert platform.stop() == 0
    path = platform.state / name
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    whole = path.read_bytes()
    for damaged, sentence in [
        (b"text " * 2000, f"{path} is not a database: move it away"),
        (whole[: len(whole) // 2], f"{path} is damaged"),
    ]:
        for journal in ("-wal", "-shm"):
            Path(f"{path}{journal}").unlink(missing_ok=True)
        path.write_bytes(damaged)
        assert sentence in refusal(engine_binary, platform.state)
        assert path.read_bytes() == damaged
    path.unlink()
    path.mkdir()
    assert f"{path} cannot be written" in refusal(engine_binary, platform.state)


def test_a_folder_of_something_else_is_a_sentence_and_stays_as_it_is(
    engine_binary: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    for folder in ("code/src", "staging"):
        (project / folder).mkdir(parents=True)
        (project / folder / "precious").write_text("x")
    before = (mode(project), sorted(project.rglob("*")))
    assert f"{project} is not a state folder: its code is" in refusal(engine_binary, project)
    assert (mode(project), sorted(project.rglob("*"))) == before


def test_a_file_and_a_read_only_folder_are_sentences(engine_binary: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert f"the state folder {file} cannot be made" in refusal(engine_binary, file)
    below = file / "state"
    assert f"the state folder {below} cannot be made" in refusal(engine_binary, below)
    folder = tmp_path / "read-only"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    target = str(folder).encode()
    if libc.mount(target, target, None, MS_BIND, None) != 0:
        pytest.skip("a read-only folder for root takes the right to mount")
    try:
        flags = MS_BIND | MS_REMOUNT | MS_RDONLY
        assert libc.mount(None, target, None, flags, None) == 0
        message = refusal(engine_binary, folder)
        assert f"the state folder {folder} is not writable" in message
        assert "choose another folder" in message
    finally:
        libc.umount2(target, 2)


def fetch(platform: Platform, path: str) -> tuple[Any, Any]:
    with urllib.request.urlopen(f"http://{platform.address}/uncia/v1/{path}") as answer:
        return answer.headers, pa.ipc.open_stream(answer.read()).read_all()


def test_the_log_comes_in_pages(serve: Serve) -> None:
    platform = serve({"pause_after_ms": 0})
    platform.create("f", OK, MemorySize=512)
    for _ in range(5):
        platform.invoke("f")
    headers, rows = fetch(platform, "invocations?limit=3")
    assert (rows.num_rows, headers["x-uncia-more"]) == (3, "true")
    last = headers["x-uncia-last-rowid"]
    headers, rest = fetch(platform, f"invocations?limit=3&after={last}")
    assert (rest.num_rows, headers["x-uncia-more"]) == (2, "false")
    assert not set(rows["request_id"].to_pylist()) & set(rest["request_id"].to_pylist())
    (instance,) = fetch(platform, "instances")[1].to_pylist()
    assert instance["ended"] is None
    assert instance["invocations"] == 5
    assert len(instance["idle"]) == 5
    headers, none = fetch(platform, "invocations?after=newest")
    assert (none.num_rows, headers["x-uncia-more"]) == (0, "false")
    newest = headers["x-uncia-last-rowid"]
    platform.invoke("f")
    assert fetch(platform, f"invocations?after={newest}")[1].num_rows == 1
    for wrong in ("limit=0", "limit=-1", "limit=x", "after=-1", "after=oldest"):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            fetch(platform, f"invocations?{wrong}")


def test_pages_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = iter(
        [
            (pa.table({"instance": ["a", "b"], "ended": [None, 2]}), 2, True),
            (pa.table({"instance": ["c"], "ended": [3]}), 3, True),
            (pa.table({"instance": ["a"], "ended": [4]}), 5, False),
        ]
    )
    asked: list[int] = []

    def page(address: str, table: str, after: int, log: object) -> tuple[Any, int, bool]:
        asked.append(after)
        return next(pages)

    monkeypatch.setattr(inquiries, "fetch_page", page)
    rows, last = inquiries.fetch_rows("", "instances", 0, lambda message: None)
    assert (asked, last) == ([0, 2, 3], 5)
    assert rows.to_pylist() == [
        {"instance": "b", "ended": 2},
        {"instance": "c", "ended": 3},
        {"instance": "a", "ended": 4},
    ]


def test_runtimes_are_linked_from_a_cache(
    serve: Serve, engine_binary: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    config = {"runtimes_cache": str(cache)}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    # Killed while they build, platforms leave nothing in it that another takes for whole.
    for seconds in (0.1, 0.2, 0.4, 0.8):
        command = [engine_binary, "serve", "--listen", "127.0.0.1:0", "--config", file]
        state = tmp_path / f"killed-{seconds}"
        with subprocess.Popen([*command, "--state", state], stdout=subprocess.DEVNULL) as killed:
            time.sleep(seconds)
            killed.kill()
    for state in ("first", "second"):
        platform = serve(config, state)
        platform.create("f")
        assert platform.invoke("f")[0].get("FunctionError") is None
        platform.stop()
    (kept,) = cache.glob("roots/python-*/root/usr/lib/libc.so.6")
    (linked,) = (tmp_path / "second").glob("runtimes/python-*/root/usr/lib/libc.so.6")
    assert kept.samefile(linked)
    # What is in the cache no longer is as the machine has it: a list of its files that says so.
    sources = kept.parents[3] / "sources.json"
    text = sources.read_text()
    sources.unlink()
    sources.write_text(text.replace('"recipe":"', '"recipe":"0'))
    platform = serve(config, "third")
    platform.create("f")
    assert platform.invoke("f")[0].get("FunctionError") is None
    assert sources.read_text() == text
