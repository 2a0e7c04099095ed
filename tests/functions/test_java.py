"""Functions in Java: compiled when they are packaged, with the jars that they bring."""

import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from function_compilers import needs_compiler

from uncia import settings
from uncia.errors import UnciaError
from uncia.functions import form, java, load, package
from uncia.functions.handlers import check_handler

GREETING = (
    'package greet;\npublic class Greeting { public static String of() { return "hello"; } }\n'
)
HANDLER = """\
import greet.Greeting;
public class Handler { public Object handleRequest(Object event) { return Greeting.of(); } }
"""


def test_the_same_sources_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_compiler("java")
    made = []
    for name in ("one", "other"):
        folder = tmp_path / name / "hello"
        shutil.copytree(load("hello").folder, folder)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name / "cache"))
        made.append(package(folder, "java").path)
    assert made[0].read_bytes() == made[1].read_bytes()
    with zipfile.ZipFile(made[0]) as archive:
        assert archive.namelist() == [*("hello/Hello.class", "uncia/Envelope.class")]
        # Of Java 17, whichever has compiled it.
        assert archive.read("hello/Hello.class")[6:8] == (61).to_bytes(2, "big")


def test_jars_are_compiled_with_and_packaged(tmp_path: Path, cache: Path) -> None:
    needs_compiler("java")
    library, folder = tmp_path / "library", tmp_path / "mine"
    (library / "greet").mkdir(parents=True)
    (library / "greet" / "Greeting.java").write_text(GREETING)
    (library / "Handler.java").write_text("public class Handler { void handleRequest() {} }")
    (folder / "lib").mkdir(parents=True)
    (folder / "Handler.java").write_text(HANDLER)
    (folder / "data.txt").write_text("data")
    with pytest.raises(UnciaError, match=r"(?s)compiling .*mine failed:.*Handler\.java:1: error"):
        package(folder)
    assert [path.suffix for path in (cache / "uncia" / "classes").iterdir()] == [".lock"]
    shutil.copy(package(library).path, folder / "lib" / "greet.jar")
    with zipfile.ZipFile(package(folder).path) as archive:
        names = {"Handler.class", "data.txt", "lib/greet.jar"}
        assert names == set(archive.namelist())
        assert not [name for name in archive.namelist() if name.endswith(".java")]
    # What is compiled already is taken as it is.
    with zipfile.ZipFile(package(folder).path) as archive:
        archive.extractall(tmp_path / "compiled")
    again = tmp_path / "compiled"
    (again / "function.yaml").write_text((load("hello").folder / "function.yaml").read_text())
    check_handler("java", "Handler::handleRequest", again)


@pytest.mark.parametrize(
    ("handler", "files", "words"),
    [
        ("a.Handler::handle", {}, "neither .*a/Handler.java nor a class, nor a jar"),
        ("a.Handler::handle", {"a/Handler.java": "class Handler {}"}, "defines no handle"),
        ("a.Handler::handle", {"a/Handler.java": "class Handler extends Other {}"}, None),
        ("a.Handler::handle", {"a/Handler.java": "void handle(Object e) {}"}, None),
        ("a.Handler", {"a/Handler.class": ""}, None),
        ("a.Handler", {"lib/a.jar": ""}, None),
    ],
)
def test_handlers_in_java(
    handler: str, files: dict[str, str], words: str | None, tmp_path: Path
) -> None:
    assert form.JavaRuntime(handler=handler).handler == handler
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if words is None:
        check_handler("java", handler, tmp_path)
    else:
        with pytest.raises(UnciaError, match=words):
            check_handler("java", handler, tmp_path)


@pytest.mark.parametrize("handler", ["", "a.B::", "a.B.c()", "a..B", "::c", "a.B::c::d"])
def test_what_is_no_handler_in_java(handler: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(handler))):
        form.JavaRuntime(handler=handler)


def test_what_is_missing_of_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    monkeypatch.setenv("PATH", str(program.parent))
    with pytest.raises(UnciaError, match="no java on the PATH"):
        java.find()
    shutil.copy(sys.executable, program)
    with pytest.raises(UnciaError, match=r"release, which says its version"):
        java.find()
    release = tmp_path / "jdk" / "release"
    for text, words in (
        ('JAVA_VERSION="11.0.2"\nMODULES="java.base jdk.compiler"\n', "is Java 11.0.2, too old"),
        ('JAVA_VERSION="21.0.2"\nMODULES="java.base"\n', r"no compiler \(the module jdk\.compiler"),
    ):
        release.write_text(text)
        with pytest.raises(UnciaError, match=words) as caught:
            java.find()
        assert "openjdk-17-jre-headless" in (caught.value.hint or "")
    release.write_text('JAVA_VERSION="21.0.2"\nMODULES="java.base jdk.compiler"\n')
    assert java.find() == (program, "21.0.2")


def test_versions_of_java_are_those_of_the_platform() -> None:
    described = settings.FUNCTION_SETTINGS["share_state"].description
    assert f"classes that it has loaded (Java {java.OLDEST} or newer)" in described
    assert f"how often its methods ran (Java {java.OLDEST_WITH_PROFILES} or newer)" in described
