"""Byte code of packages: made when they are stored, and believed of no source but its own."""

import importlib.util
import io
import json
import marshal
import os
import py_compile
import stat
import textwrap
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest
from patience import scaled

from .conftest import Platform, Serve

VALUE = "def handler(event, context):\n    return {value!r}\n"
# What an instance sees of its code, and of the byte code beside it.
LISTING = """
import os
import deep.inner

def handler(event, context):
    refused = []
    for place in ("/var/task/x", "/var/runtime/bytecode/x", "/var/runtime/bytecode/handler.pyc"):
        try:
            open(place, "w").close()
        except OSError:
            refused.append(place)
    found = [os.path.join(top, name) for top, _, names in os.walk("/var/task") for name in names]
    return sorted(found), refused, __file__, deep.inner.__cached__
"""
HEADER_BYTES = 16


def compiled(state: Path) -> dict[str, Path]:
    """Byte code by the path of its source with a c, whatever the package and the version."""
    files: dict[str, Path] = {}
    top = state / "bytecode"
    # A folder may go away meanwhile, on which `Path.rglob` would raise.
    for folder, _, names in os.walk(top):
        for file in (Path(folder) / name for name in names if name.endswith(".pyc")):
            files[str(Path(*file.relative_to(top).parts[2:]))] = file
    return files


def forge(file: Path, source: str, *, keep_header: bool) -> None:
    """Byte code of another source in place of ``file``, under its header or one of its own."""
    code = marshal.dumps(compile(source, "/var/task/handler.py", "exec"))
    if keep_header:
        header = file.read_bytes()[:HEADER_BYTES]
    else:
        flags = (0b11).to_bytes(4, "little")
        header = importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(source.encode())
    file.write_bytes(header + code)


def runs_this_python(platform: Platform) -> bool:
    """Whether byte code of this interpreter is byte code of the functions'."""
    (file,) = compiled(platform.state).values()
    return file.read_bytes()[:4] == importlib.util.MAGIC_NUMBER


def test_packages_are_compiled_when_they_are_stored(serve: Serve) -> None:
    before = os.umask(0o077)
    try:
        platform = serve()
    finally:
        os.umask(before)
    source = {"handler.py": LISTING, "deep/inner.py": "x = 1\n", "bad.py": "def\n", "a.txt": "x"}
    platform.create("f", source)
    files = compiled(platform.state)
    assert sorted(files) == ["deep/inner.pyc", "handler.pyc"]
    for file in files.values():
        assert stat.S_IMODE(file.stat().st_mode) == 0o644
        assert file.stat().st_uid == os.getuid()
    answer = platform.invoke("f")[1]
    names = [f"/var/task/{name}" for name in sorted(source)]
    assert answer[0] == names
    assert len(answer[1]) == 3
    assert answer[2] == "/var/task/handler.py"
    assert answer[3].startswith("/var/task/deep/__pycache__/inner.")
    platform.client.delete_function(FunctionName="f")
    # An instance may use it yet; it goes with the last.
    deadline = time.monotonic() + scaled(30)
    while compiled(platform.state) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert compiled(platform.state) == {}


def test_a_package_in_which_nothing_compiles_is_compiled_once(serve: Serve) -> None:
    first = serve()
    first.create("f", "def\n")
    (marker,) = (first.state / "bytecode").glob("*/*")
    assert marker.read_bytes() == b""
    inode = marker.stat().st_ino
    answer, payload = first.invoke("f")
    assert answer["FunctionError"] == "Unhandled", payload
    assert first.stop() == 0
    serve().create("g", "def\n")
    assert marker.stat().st_ino == inode


def test_byte_code_is_used_and_only_that_of_the_source_as_it_is(serve: Serve) -> None:
    platform = serve()
    platform.create("f", VALUE.format(value="source"))
    if not runs_this_python(platform):
        pytest.skip("the functions' Python is not the tests'")
    (file,) = compiled(platform.state).values()
    forge(file, VALUE.format(value="byte code"), keep_header=True)
    # Whoever may write there may do anything; it shows that instances read it.
    assert platform.invoke("f")[1] == "byte code"
    (source,) = (platform.state / "code").rglob("handler.py")
    source.write_text(VALUE.format(value="newer source"))
    platform.client.update_function_configuration(FunctionName="f", Description="new instances")
    platform.client.update_function_configuration(FunctionName="f", MemorySize=257)
    assert platform.invoke("f")[1] == "newer source"
    for damage in (b"", b"torn", file.read_bytes()[:HEADER_BYTES], os.urandom(200)):
        file.write_bytes(damage)
        size = 300 + len(damage)
        platform.client.update_function_configuration(FunctionName="f", MemorySize=size)
        assert platform.invoke("f")[1] == "newer source"


MODES = py_compile.PycInvalidationMode


def own_byte_code(source: str, folder: Path, mode: MODES, level: int = -1) -> bytes:
    """Byte code of this source, of this interpreter."""
    file = folder / "own.py"
    file.write_text(source)
    cached = str(folder / "own.pyc")
    py_compile.compile(
        str(file), cfile=cached, invalidation_mode=mode, doraise=True, optimize=level
    )
    return Path(cached).read_bytes()


def zipped(files: dict[str, str | bytes]) -> dict[str, bytes]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return {"ZipFile": buffer.getvalue()}


def warned(platform: Platform) -> dict[str, str]:
    """What is said of byte code, by function."""
    with urllib.request.urlopen(f"http://{platform.address}/uncia/v1/health") as answer:
        sentences = [it for it in json.load(answer)["warnings"] if "byte code" in it]
    return {it.split(":")[0].removeprefix("The function "): it for it in sentences}


def test_no_byte_code_of_a_package_stands_for_a_source_that_is_there(
    serve: Serve, tmp_path: Path
) -> None:
    platform = serve()
    platform.create("probe", VALUE.format(value=1))
    if not runs_this_python(platform):
        pytest.skip("the functions' Python is not the tests'")
    source, other = VALUE.format(value="source"), VALUE.format(value="other source")
    tag = importlib.util.cache_from_source("handler.py").split(".")[1]
    unchecked = own_byte_code(other, tmp_path, MODES.UNCHECKED_HASH)
    checked = own_byte_code(other, tmp_path, MODES.CHECKED_HASH)
    timed = own_byte_code(other, tmp_path, MODES.TIMESTAMP)
    honest = own_byte_code(source, tmp_path, MODES.CHECKED_HASH)
    # Under the hash of the source, with other code: nothing tells it from the source's.
    posing = honest[:HEADER_BYTES] + checked[HEADER_BYTES:]
    optimized = own_byte_code(other, tmp_path, MODES.UNCHECKED_HASH, level=1)
    cases = {
        "unchecked": (unchecked, "made from another source"),
        "stale": (checked, "made from another source"),
        "timed": (timed, "made from another source"),
        "older": (b"\x61\x0d" + unchecked[2:], "made by another version"),
        "damaged": (b"torn", "damaged"),
        "empty": (b"", "damaged"),
        "posing": (posing, None),
        "honest": (honest, None),
    }
    for name, (byte_code, _) in cases.items():
        files = {"handler.py": source, f"__pycache__/handler.{tag}.pyc": byte_code}
        platform.create(name, Code=zipped(files))
    files = {"handler.py": source, f"__pycache__/handler.{tag}.opt-1.pyc": optimized}
    level = {"Variables": {"PYTHONOPTIMIZE": "1"}}
    platform.create("optimized", Code=zipped(files), Environment=level)
    # Without a source it is what there is.
    platform.create("sourceless", Code=zipped({"handler.pyc": unchecked}))
    assert [path for path in compiled(platform.state) if "__pycache__" in path] == []
    wanted = {name: reason for name, (_, reason) in cases.items() if reason}
    wanted["optimized"] = "made from another source"
    # They are there before and after an invocation, and after a restart.
    for is_last in (False, False, True):
        if is_last:
            assert platform.stop() == 0
            platform = serve()
        for name in (*cases, "optimized"):
            assert platform.invoke(name)[1] == "source", name
        assert platform.invoke("sourceless")[1] == "other source"
        sentences = warned(platform)
        assert set(sentences) == set(wanted)
        assert all(reason in sentences[name] for name, reason in wanted.items()), sentences
    platform.client.update_function_code(FunctionName="stale", **zipped({"handler.py": source}))
    assert "stale" not in warned(platform)


@pytest.mark.parametrize("start_from", ["prepared", "zygote", "function_zygote"])
def test_byte_code_of_the_platforms_that_is_damaged_is_said(serve: Serve, start_from: str) -> None:
    platform = serve()
    platform.create("f", VALUE.format(value="source"))
    (file,) = compiled(platform.state).values()
    whole = file.read_bytes()
    for count, damage in enumerate((whole[:-20], whole[:HEADER_BYTES], b"", os.urandom(200))):
        file.write_bytes(damage)
        platform.client.update_function_configuration(FunctionName="f", MemorySize=300 + count)
        platform.client.tag_resource(
            Resource=platform.client.get_function(FunctionName="f")["Configuration"]["FunctionArn"],
            Tags={"uncia:start-from": start_from},
        )
        assert platform.invoke("f")[1] == "source"
        assert "is damaged or another's (1 of its files)" in warned(platform)["f"]
    file.write_bytes(whole)
    platform.client.update_function_configuration(FunctionName="f", MemorySize=400)
    assert platform.invoke("f")[1] == "source"
    assert warned(platform) == {}


def test_byte_code_stands_for_no_other_file_and_for_no_other_level(serve: Serve) -> None:
    platform = serve()
    source = """
        import pkgutil

        def handler(event, context):
            try:
                pkgutil.get_data("package", "missing.json")
            except FileNotFoundError:
                missing = True
            try:
                assert False
            except AssertionError:
                return [missing, "asserted"]
            return [missing, "optimized"]
    """
    files = {"handler.py": textwrap.dedent(source), "package/__init__.py": ""}
    platform.create("f", files)
    platform.create("o", files, Environment={"Variables": {"PYTHONOPTIMIZE": "1"}})
    assert platform.invoke("f")[1] == [True, "asserted"]
    assert platform.invoke("o")[1] == [True, "optimized"]


def test_a_cache_that_goes_by_times_is_no_hindrance(serve: Serve, tmp_path: Path) -> None:
    platform = serve()
    (tmp_path / "inner.py").write_text("x = 1\n")
    cache = Path(py_compile.compile(str(tmp_path / "inner.py"), doraise=True) or "")
    source = """
        import inner

        def handler(event, context):
            return inner.__spec__.loader.get_data(inner.__cached__)[4:8] != bytes(4)
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("handler.py", textwrap.dedent(source))
        archive.write(tmp_path / "inner.py", "inner.py")
        archive.write(cache, f"__pycache__/{cache.name}")
    platform.create("f", Code={"ZipFile": buffer.getvalue()})
    if runs_inner(platform):
        assert platform.invoke("f")[1] is True


def runs_inner(platform: Platform) -> bool:
    """Whether byte code of this interpreter is byte code of the functions'."""
    magic = compiled(platform.state)["inner.pyc"].read_bytes()[:4]
    return magic == importlib.util.MAGIC_NUMBER


def test_sources_that_hang_or_crash_the_compiler_keep_only_themselves_from_it(
    serve: Serve,
) -> None:
    platform = serve()
    source = {
        "handler.py": VALUE.format(value="fine"),
        "nested.py": "(" * 100_000 + ")" * 100_000,
        "unary.py": "x = " + "-" * 500_000 + "1\n",
        "huge.py": "x = " + "+".join(["a"] * 300_000) + "\n",
        "constant.py": "x = (1,) * 10**9\ny = 'x' * 10**12\nz = 2**2**2**2**2**2\n",
        # Takes 2 GiB, and the platform's patience.
        "bomb.py": "x = [" + "a," * 1_900_000 + "]\n",
        "slow.py": "x = [" + "a," * 200_000 + "]\n",
        "zero.py": "x = 1\0\n",
        "latin.py": "# coding: no-such-coding\n",
        "z.py": "y = 2\n",
    }
    platform.create("f", source)
    files = compiled(platform.state)
    assert {"handler.pyc", "z.pyc"} <= set(files)
    assert platform.invoke("f")[1] == "fine"


def test_packages_of_an_earlier_version_are_compiled_at_the_next_start(serve: Serve) -> None:
    first = serve()
    first.create("f", VALUE.format(value=1))
    (file,) = compiled(first.state).values()
    assert first.stop() == 0
    # As if by another version of the interpreter.
    file.parent.rename(file.parent.with_name("python-3.0.0"))
    second = serve()
    assert second.invoke("f")[1] == 1
    deadline = time.monotonic() + scaled(60)
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert file.exists()
    assert [path.name for path in file.parent.parent.iterdir()] == [file.parent.name]
    assert second.stop() == 0
    third = serve()
    assert third.invoke("f")[1] == 1
