"""Packages: the same bytes for the same input, whole or not at all."""

import os
import subprocess
import sys
import textwrap
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from uncia import cache as caching
from uncia.errors import UnciaError
from uncia.functions import list_functions, load, package
from uncia.functions.dependencies import Target, check_lock, pinned

PILLOW_FREE = [f.name for f in list_functions() if f.name != "resize"]


def _leftovers(cache: Path) -> list[str]:
    return sorted(p.name for p in cache.rglob("*") if p.is_file() and p.suffix != ".lock")


@pytest.mark.parametrize("name", PILLOW_FREE)
def test_the_same_input_gives_the_same_bytes(
    name: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for runtime in load(name).runtime_names:
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        first = package(name, runtime)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
        second = package(name, runtime)
        assert first.path != second.path
        assert first.read_bytes() == second.read_bytes()
        assert first.sha256 == second.sha256
        assert first.size == len(first.read_bytes())


def test_time_and_order_of_files_do_not_matter_but_content_and_mode_do(
    mine: Path, cache: Path
) -> None:
    first = package(mine)
    os.utime(mine / "python" / "handler.py", (1, 1))
    (mine / "python" / "__pycache__").mkdir()
    (mine / "python" / "__pycache__" / "handler.cpython-311.pyc").write_bytes(b"x")
    (mine / "python" / ".hidden").write_text("x")
    assert package(mine).sha256 == first.sha256
    (mine / "python" / "data.txt").write_text("1")
    second = package(mine)
    assert second.sha256 != first.sha256
    (mine / "python" / "data.txt").chmod(0o755)
    third = package(mine)
    assert third.sha256 not in (first.sha256, second.sha256)
    with zipfile.ZipFile(third.path) as archive:
        assert archive.namelist() == [
            "data.txt",
            "handler.py",
            "uncia_documents.py",
            "uncia_envelope.py",
            "uncia_memory.py",
        ]
        assert archive.getinfo("data.txt").external_attr >> 16 == 0o100755
        assert archive.getinfo("handler.py").external_attr >> 16 == 0o100644
        assert {info.date_time[0] for info in archive.infolist()} == {1980}
        assert archive.testzip() is None


def test_a_package_in_the_cache_is_used_again(mine: Path, cache: Path) -> None:
    first = package(mine)
    stamp = first.path.stat().st_ino
    assert package(mine).path.stat().st_ino == stamp


def test_the_envelope_does_not_replace_a_file_of_ones_own(mine: Path, cache: Path) -> None:
    (mine / "python" / "uncia_envelope.py").write_text("MINE = 1\n")
    with zipfile.ZipFile(package(mine).path) as archive:
        assert archive.read("uncia_envelope.py") == b"MINE = 1\n"


@pytest.mark.parametrize("size", [1, 1000, 3_000_000])
def test_filler_makes_a_package_larger_by_its_size(size: int, mine: Path, cache: Path) -> None:
    plain, padded = package(mine), package(mine, filler=size)
    assert padded.unzipped_size == plain.unzipped_size + size
    assert size <= padded.size - plain.size <= size + 300
    with zipfile.ZipFile(padded.path) as archive:
        data = archive.read("uncia-filler.bin")
    assert len(data) == size
    if size >= 1000:
        assert len(zlib.compress(data, 9)) >= size
    assert package(mine, filler=size).sha256 == padded.sha256


def test_impossible_requests_are_told(mine: Path, cache: Path) -> None:
    with pytest.raises(UnciaError, match="impossible"):
        package(mine, filler=-1)
    with pytest.raises(UnciaError, match=r"no runtime 'node' \(allowed: python\)"):
        package(mine, "node")
    with pytest.raises(UnciaError, match="not a Python version"):
        package("resize", python_version="2.7.1")
    with pytest.raises(UnciaError, match="unknown architecture"):
        package("resize", architecture="pdp11")


@pytest.mark.parametrize(
    ("handler", "source", "message"),
    [
        ("nosuch.handler", "def handler(e, c): ...", "there is no file"),
        ("handler.main", "def handler(e, c): ...", "defines no main"),
        ("handler.handler", "def handler(e, c:\n", "handler.py:1: this is not valid Python"),
        ("handler.handler", "# handler\n'handler'\n", "defines no handler"),
        ("handler.handler", "def other():\n    handler = 1\n", "defines no handler"),
    ],
)
def test_a_missing_handler_is_told(
    handler: str, source: str, message: str, mine: Path, cache: Path
) -> None:
    yaml = mine / "function.yaml"
    yaml.write_text(yaml.read_text().replace("handler.handler", handler))
    (mine / "python" / "handler.py").write_text(source)
    with pytest.raises(UnciaError, match=message):
        package(mine)
    assert _leftovers(cache) == []


@pytest.mark.parametrize(
    "source",
    [
        "handler = print\n",
        "from other import handler\n",
        "from other import something as handler\n",
        "from other import *\n",
        "try:\n    import x\nexcept ImportError:\n    def handler(e, c): ...\n",
        "async def handler(e, c): ...\n",
        "handler: object = print\n",
        "a, (b, handler) = 1, (2, 3)\n",
        "if True:\n    class handler: ...\n",
        "with open('x') as f:\n    def handler(e, c): ...\n",
    ],
)
def test_handlers_may_be_defined_in_many_ways(source: str, mine: Path, cache: Path) -> None:
    (mine / "python" / "handler.py").write_text(source)
    assert package(mine).handler == "handler.handler"


def test_a_handler_may_be_in_a_package(mine: Path, cache: Path) -> None:
    yaml = mine / "function.yaml"
    yaml.write_text(yaml.read_text().replace("handler.handler", "app/api.main"))
    (mine / "python" / "app").mkdir()
    (mine / "python" / "app" / "api.py").write_text("def main(e, c): ...\n")
    with zipfile.ZipFile(package(mine).path) as archive:
        assert "app/api.py" in archive.namelist()


@pytest.mark.parametrize(
    ("name", "source", "good"),
    [
        ("index.js", "exports.handler = async () => 1;", True),
        ("index.js", "module.exports = { handler: () => 1 };", True),
        ("index.js", "exports['handler'] = () => 1;", True),
        ("index.mjs", "export const handler = async () => 1;", True),
        ("index.mjs", "const handler = () => 1;\nexport { handler };", True),
        ("index.js", "exports.main = 1; const handler = 2;", False),
        ("main.js", "exports.handler = async () => 1;", False),
    ],
)
def test_node_handlers_are_looked_for(
    name: str, source: str, good: bool, mine: Path, cache: Path
) -> None:
    yaml = mine / "function.yaml"
    yaml.write_text(
        yaml.read_text().replace("  python:\n    handler: handler.", "  node:\n    handler: index.")
    )
    (mine / "node").mkdir()
    (mine / "node" / name).write_text(source)
    if good:
        assert package(mine).runtime == "node"
    else:
        with pytest.raises(UnciaError, match="is missing"):
            package(mine)


@pytest.mark.parametrize(
    ("name", "source", "good"),
    [
        ("main.sh", "handler() { echo 1; }", True),
        ("main.sh", "function handler { echo 1; }", True),
        ("main.sh", "source ./other.sh", True),
        ("main.sh", "other() { handler; }", False),
        ("other.sh", "handler() { echo 1; }", False),
    ],
)
def test_bash_handlers_are_looked_for(
    name: str, source: str, good: bool, mine: Path, cache: Path
) -> None:
    yaml = mine / "function.yaml"
    yaml.write_text(
        yaml.read_text().replace("  python:\n    handler: handler.", "  bash:\n    handler: main.")
    )
    (mine / "bash").mkdir()
    (mine / "bash" / name).write_text(source)
    if good:
        assert package(mine).runtime == "bash"
    else:
        with pytest.raises(UnciaError, match="is missing"):
            package(mine)


def test_links_out_of_the_folder_are_refused(mine: Path, cache: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    inside = mine / "python" / "inside.py"
    inside.symlink_to("handler.py")
    with zipfile.ZipFile(package(mine).path) as archive:
        assert archive.read("inside.py") == (mine / "python" / "handler.py").read_bytes()
    (mine / "python" / "link").symlink_to(secret)
    with pytest.raises(UnciaError, match="link out of its folder"):
        package(mine)
    (mine / "python" / "link").unlink()
    (mine / "python" / "link").symlink_to(mine / "python", target_is_directory=True)
    with pytest.raises(UnciaError, match="link to a folder"):
        package(mine)
    (mine / "python" / "link").unlink()
    os.mkfifo(mine / "python" / "pipe")
    with pytest.raises(UnciaError, match="neither a file nor a folder"):
        package(mine)


def _require(mine: Path, lock: str | None, name: str = "six") -> None:
    yaml = mine / "function.yaml"
    yaml.write_text(
        yaml.read_text().replace("handler.handler", f"handler.handler\n    requirements: [{name}]")
    )
    if lock is not None:
        (mine / "python" / "requirements.txt").write_text(lock)


HASH = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("lock", "message"),
    [
        (None, "requirements.txt is missing"),
        ("", "does not pin six"),
        ("seven==1 --hash=" + HASH, "does not pin six"),
        ("six>=1 --hash=" + HASH, r"requirements\.txt:1: not pinned"),
        ("# comment\n\nsix==1.17.0\n", r"requirements\.txt:3: six has no --hash"),
        (
            "--index-url x\nsix==1.17.0 --hash=" + HASH,
            r"requirements\.txt:1: options do not belong",
        ),
    ],
)
def test_a_lock_must_pin_everything_with_hashes(
    lock: str | None, message: str, mine: Path, cache: Path
) -> None:
    _require(mine, lock)
    with pytest.raises(UnciaError, match=message) as caught:
        package(mine)
    assert caught.value.hint is not None
    assert f"uncia functions lock {mine}" in caught.value.hint
    assert _leftovers(cache) == []


def test_names_and_continuations_in_a_lock_are_understood(mine: Path) -> None:
    (mine / "python" / "requirements.txt").write_text(
        f"Some_Thing[extra]==1 ; python_version > '3' \\\n    --hash={HASH} \\\n    --hash={HASH}\n"
        "    # via nothing\n"
    )
    lock = mine / "python" / "requirements.txt"
    assert check_lock(lock, ["some.thing", "some-thing>=1"], mine) == lock
    assert pinned(lock) == ["Some_Thing==1"]


def _packages(folder: Path) -> list[Path]:
    return [p for p in (folder / "uncia").rglob("*") if p.suffix != ".lock" and p.is_file()]


def test_a_failed_installation_leaves_nothing(mine: Path, cache: Path) -> None:
    # The version is real and the hash is not, so that the installer refuses what it gets; without a
    # network it fails earlier, with the same outcome.
    _require(mine, f"six==1.17.0 --hash={HASH}\n")
    for _ in range(2):
        with pytest.raises(UnciaError, match="failed") as caught:
            package(mine)
        assert caught.value.exit_code == 1
        assert _packages(cache) == []
        assert not list(cache.rglob("*.partial"))


def test_requirements_are_installed_once_and_packaged(call: Any) -> None:
    first = package("resize")
    again = package("resize")
    assert first.sha256 == again.sha256
    with zipfile.ZipFile(first.path) as archive:
        names = archive.namelist()
    assert "PIL/Image.py" in names
    assert not [n for n in names if n.endswith(".pyc") or n.startswith("bin/")]
    assert "requirements.txt" not in names
    # An installer's notes about itself would make the bytes depend on the installer.
    assert not [n for n in names if n.endswith(("/INSTALLER", "/RECORD", "/REQUESTED"))]
    assert [n for n in names if n.endswith(".dist-info/METADATA")]


def test_a_requirement_may_not_replace_a_file(
    mine: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = cache / "installed"
    installed.mkdir()
    (installed / "handler.py").write_text("x = 1\n")
    _require(mine, f"six==1.17.0 --hash={HASH}\n")
    monkeypatch.setattr("uncia.functions.dependencies.install", lambda lock, target: installed)
    with pytest.raises(UnciaError, match="so has one of its requirements"):
        package(mine)


def test_targets_are_part_of_the_identity(tmp_path: Path) -> None:
    from uncia.functions.dependencies import key

    lock = tmp_path / "requirements.txt"
    lock.write_text("x")
    targets = [
        Target.of("3.11", "x86_64"),
        Target.of("3.12", "x86_64"),
        Target.of("3.11", "arm64"),
    ]
    assert len({key(lock, target) for target in targets}) == 3
    assert Target.of("3.11", "AMD64") == targets[0]
    assert Target.of("3.11", "aarch64") == targets[2]


def test_what_is_made_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "thing"

    def fail(partial: Path) -> None:
        partial.mkdir()
        (partial / "half").write_text("x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        caching.create_once(path, fail)
    assert [p.name for p in tmp_path.iterdir()] == ["thing.lock"]
    assert caching.create_once(path, lambda p: p.write_text("whole") and None) == path
    assert path.read_text() == "whole"
    assert caching.create_once(path, fail) == path


def test_a_killed_attempt_leaves_nothing_that_counts(tmp_path: Path) -> None:
    path = tmp_path / "thing"
    program = textwrap.dedent(
        """
        import os, pathlib, signal, sys
        from uncia.cache import create_once
        def half(partial):
            partial.mkdir()
            (partial / "half").write_text("x")
            os.kill(os.getpid(), signal.SIGKILL)
        create_once(pathlib.Path(sys.argv[1]), half)
        """
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False, timeout=60)
    assert done.returncode == -9
    assert not path.exists()
    assert (tmp_path / "thing.partial").exists()

    def whole(partial: Path) -> None:
        assert not partial.exists()
        partial.mkdir()
        (partial / "all").write_text("x")

    assert [p.name for p in caching.create_once(path, whole).iterdir()] == ["all"]
    assert not (tmp_path / "thing.partial").exists()


def test_several_processes_make_a_thing_once(tmp_path: Path) -> None:
    path, log = tmp_path / "thing", tmp_path / "log"
    program = textwrap.dedent(
        """
        import os, pathlib, sys, time
        from uncia.cache import create_once
        def make(partial):
            with open(sys.argv[2], "a") as log:
                log.write("made\\n")
            time.sleep(0.2)
            partial.write_text("whole")
        assert create_once(pathlib.Path(sys.argv[1]), make).read_text() == "whole"
        """
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(path), str(log)]) for _ in range(4)
    ]
    assert [process.wait(60) for process in processes] == [0, 0, 0, 0]
    assert log.read_text() == "made\n"


def test_what_was_not_used_for_long_is_removed(tmp_path: Path) -> None:
    for name in ("old", "new"):
        caching.create_once(tmp_path / name, lambda p: p.write_text("x") and None)
    long_ago = time.time() - (caching.UNUSED_DAYS + 1) * 86_400
    os.utime(tmp_path / "old", (long_ago, long_ago))
    caching.create_once(tmp_path / "third", lambda p: p.write_text("x") and None)
    kept = {p.name for p in tmp_path.iterdir() if p.suffix != ".lock"}
    assert kept == {"new", "third"}


def test_a_cache_that_cannot_be_written_is_a_sentence(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    with pytest.raises(UnciaError, match="cache") as caught:
        package(mine)
    assert caught.value.hint is not None
    assert "XDG_CACHE_HOME" in caught.value.hint
