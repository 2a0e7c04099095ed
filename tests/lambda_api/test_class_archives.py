"""Archives of Java's classes: made when a package is stored, mapped by its instances alone."""

import io
import os
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from uncia import functions

from .conftest import Platform, Serve
from .test_serving import wait_for

# Says where classes come from, as the virtual machine has written it down.
SOURCE = """
import java.nio.file.*;
import java.util.*;

public class Handler {
    static class Inner { static int number = 5; }
    public Object handleRequest(Map<String, Object> event) throws Exception {
        Map<String, Object> answer = new TreeMap<>();
        answer.put("number", Inner.number);
        var text = getClass().getResourceAsStream("/deep/text.txt");
        answer.put("text", new String(text.readAllBytes()));
        Path log = Path.of("/tmp/loaded.txt");
        for (String line : Files.exists(log) ? Files.readAllLines(log) : List.<String>of()) {
            if (line.startsWith("Handler ") || line.startsWith("Handler$Inner ")) {
                answer.put(line.split(" ")[0], line.contains("shared objects file"));
            }
        }
        return answer;
    }
}
"""
LOG = "-Xlog:class+load:file=/tmp/loaded.txt:none"
ANSWER = {"number": 5, "text": "a text"}
SHARED = ANSWER | {"Handler": True, "Handler$Inner": True}
LOADED = ANSWER | {"Handler": False, "Handler$Inner": False}


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The package of a plain folder."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "Handler.java").write_text(SOURCE)
    (folder / "deep").mkdir()
    (folder / "deep" / "text.txt").write_text("a text")
    return functions.package(folder).read_bytes()


def create(platform: Platform, name: str, code: bytes, options: str = LOG) -> None:
    platform.create(
        name,
        Code={"ZipFile": code},
        Runtime="java21",
        Handler="Handler::handleRequest",
        MemorySize=512,
        Environment={"Variables": {"JAVA_TOOL_OPTIONS": options}},
    )


def archives(state: Path) -> list[Path]:
    return sorted((state / "bytecode").glob("*/java-*/classes.jsa"))


def restart(platform: Platform, name: str) -> Any:
    """What a new instance answers."""
    variables = {"JAVA_TOOL_OPTIONS": LOG, "turn": str(time.monotonic_ns())}
    platform.client.update_function_configuration(
        FunctionName=name, Environment={"Variables": variables}
    )
    return platform.invoke(name)[1]


def test_classes_are_mapped_from_the_archive_of_their_package(
    java: None, serve: Serve, mine: bytes
) -> None:
    platform = serve()
    create(platform, "f", mine)
    (archive,) = archives(platform.state)
    assert archive.stat().st_uid == os.getuid()
    assert platform.invoke("f")[1] == SHARED
    create(platform, "off", mine, f"-Xshare:off {LOG}")
    assert platform.invoke("off")[1] == LOADED
    assert archives(platform.state) == [archive]

    # Another package has another, whatever its classes are called.
    with zipfile.ZipFile(io.BytesIO(mine)) as old, io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w") as new:
            for entry in old.infolist():
                new.writestr(entry.filename, old.read(entry))
            new.writestr("more.txt", "x")
            new.writestr("Broken.class", b"\xca\xfe\xba\xbe" + os.urandom(100))
        other = buffer.getvalue()
    create(platform, "g", other)
    assert len(archives(platform.state)) == 2
    assert platform.invoke("g")[1] == SHARED

    # One that is not what its beginning must say is none.
    content = archive.read_bytes()
    archive.chmod(0o644)
    for damage in (b"", b"torn", bytes(len(content))):
        archive.write_bytes(damage)
        assert restart(platform, "f") == LOADED
    assert platform.stop() == 0
    again = serve()
    assert again.invoke("g")[1] == SHARED


def test_an_archive_is_of_its_root(java: None, serve: Serve, mine: bytes, tmp_path: Path) -> None:
    platform = serve()
    create(platform, "f", mine)
    (archive,) = archives(platform.state)
    made = archive.stat().st_ino
    platform.stop()
    # The same root made anew has the same jars.
    (root,) = (platform.state / "runtimes").glob("java-*")
    shutil.rmtree(root)
    platform = serve()
    assert platform.invoke("f")[1] == SHARED
    assert root.is_dir()
    assert [it.stat().st_ino for it in archives(platform.state)] == [made]
    platform.stop()

    # Another of the same version.
    home = Path(shutil.which("java") or "").resolve().parents[1]
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    shutil.copy(home / "bin" / "java", tmp_path / "jdk" / "bin")
    for name in ("conf", "lib", "release"):
        (tmp_path / "jdk" / name).symlink_to(home / name)
    platform = serve({"runtimes": {"java": str(tmp_path / "jdk" / "bin" / "java")}})
    wait_for(lambda: bool(archives(platform.state)) and archives(platform.state) != [archive])
    assert restart(platform, "f") == SHARED
    assert not archive.exists()


def test_jars_are_archived_too_and_nothing_of_a_package_runs(
    java: None, platform: Platform, mine: bytes, tmp_path: Path
) -> None:
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w") as package:
            package.writestr("lib/handler.jar", mine)
        create(platform, "jar", buffer.getvalue())
    assert len(archives(platform.state)) == 1
    assert platform.invoke("jar")[1] == SHARED

    endless = tmp_path / "endless"
    endless.mkdir()
    (endless / "Handler.java").write_text(
        """
        public class Handler {
            static int number = spin();
            static int spin() { while (true) Thread.onSpinWait(); }
            public Object handleRequest(Object event) { return event; }
        }
        """
    )
    create(platform, "endless", functions.package(endless).read_bytes())
    assert len(archives(platform.state)) == 2

    # Neither classes nor jars: there is nothing to share.
    with io.BytesIO() as buffer:
        with zipfile.ZipFile(buffer, "w") as package:
            package.writestr("lib/readme.txt", "no jar")
        create(platform, "none", buffer.getvalue())
    answer, error = platform.invoke("none")
    assert answer["FunctionError"] == "Unhandled"
    assert error["errorMessage"] == "Class not found: Handler"
