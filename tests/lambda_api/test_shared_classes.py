"""Classes that instances share, with profiles of methods or without.

Archives are made by every Java here; caches with profiles by Java 25 and newer, and refused where
it is older.
"""

import io
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from uncia import functions
from uncia.errors import UnciaError
from uncia.functions.java import OLDEST_WITH_PROFILES

from .conftest import Platform, Serve
from .test_class_archives import ANSWER, LOG, SHARED, SOURCE
from .test_serving import wait_for

REFUSAL = rf"cannot be profile here: it takes Java {OLDEST_WITH_PROFILES} or newer"
TAGS = {"uncia:share-state": "profile", "uncia:share-after": "3"}

# A class of Java's own that is in none of the archives which are there from the start.
LIBRARY = "java.util.zip.Adler32"

# Whether the class path, as programs look it up, has the layer's jar.
LAYER = """
answer.put("layer", System.getProperty("java.class.path").endsWith(":/opt/java/lib/layer.jar"));
"""
WANTED = ANSWER | {"layer": True}


def major(program: Path) -> int:
    release = program.resolve().parents[1] / "release"
    text = release.read_text() if release.is_file() else ""
    version = re.search(r'^JAVA_VERSION="(\d+)', text, re.MULTILINE)
    return int(version[1]) if version else 0


def javas() -> list[Path]:
    """Those on the PATH and where distributions have them."""
    there = [Path(path) for path in (shutil.which("java"),) if path]
    return there + sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


def package(folder: Path) -> bytes:
    source = SOURCE.replace("Path log", f"new {LIBRARY}().update(1); Path log").replace(
        'line.startsWith("Handler ")',
        f'line.startsWith("{LIBRARY} ") || line.startsWith("Handler ")',
    )
    source = source.replace("return answer;", f"{LAYER} return answer;")
    (folder / "mine" / "deep").mkdir(parents=True)
    (folder / "mine" / "Handler.java").write_text(source)
    (folder / "mine" / "deep" / "text.txt").write_text("a text")
    try:
        return functions.package(folder / "mine").read_bytes()
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")


def zipped(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def create(platform: Platform, code: bytes, tags: dict[str, str]) -> Any:
    """A function with a layer, in whose jar is another file of a name that its package has."""
    jar = zipped("deep/text.txt", b"a text of the layer")
    layer = platform.client.publish_layer_version(
        LayerName="layer", Content={"ZipFile": zipped("java/lib/layer.jar", jar)}
    )
    return platform.create(
        "f",
        Code={"ZipFile": code},
        Runtime="java21",
        Handler="Handler::handleRequest",
        MemorySize=512,
        Environment={"Variables": {"JAVA_TOOL_OPTIONS": LOG}},
        Layers=[layer["LayerVersionArn"]],
        Tags=tags,
    )["FunctionArn"]


@pytest.mark.parametrize("is_new", [False, True], ids=["before-25", "25"])
def test_later_instances_start_with_the_classes(serve: Serve, tmp_path: Path, is_new: bool) -> None:
    java = next(
        (
            path
            for path in javas()
            if major(path) >= 17 and (major(path) >= OLDEST_WITH_PROFILES) == is_new
        ),
        None,
    )
    if java is None:
        pytest.skip(f"there is no Java {'25 or newer' if is_new else 'from 17 to 24'} here")
    platform = serve({"runtimes": {"java": str(java)}})
    arn = create(platform, package(tmp_path), TAGS | {"uncia:share-state": "classes"})
    # The fourth request waits until it has been made.
    for _ in range(4):
        assert platform.invoke("f")[1].items() >= WANTED.items()
    assert list((platform.state / "shared").glob("*/classes.jsa"))
    # From now on each instance serves once.
    platform.client.tag_resource(Resource=arn, Tags={"uncia:keep-alive-ms": "0"})
    wait_for(lambda: platform.invoke("f")[1] == SHARED | WANTED | {LIBRARY: True})


def test_an_older_java_is_refused_by_version(serve: Serve, tmp_path: Path) -> None:
    old = next((path for path in javas() if 17 <= major(path) < OLDEST_WITH_PROFILES), None)
    if old is None:
        pytest.skip(f"there is no Java older than {OLDEST_WITH_PROFILES} here")
    platform = serve({"runtimes": {"java": str(old)}})
    code = {"ZipFile": package(tmp_path)}
    settings = {"Code": code, "Runtime": "java21", "Handler": "Handler::handleRequest"}
    with pytest.raises(ClientError, match=REFUSAL):
        platform.create("f", **settings, Tags=TAGS)
    arn = platform.create("f", **settings)["FunctionArn"]
    with pytest.raises(ClientError, match=r"and the platform's is 1\d"):
        platform.client.tag_resource(Resource=arn, Tags=TAGS)


def test_later_instances_start_with_the_profile(serve: Serve, tmp_path: Path) -> None:
    new = next((path for path in javas() if major(path) >= OLDEST_WITH_PROFILES), None)
    if new is None:
        pytest.skip(f"there is no Java {OLDEST_WITH_PROFILES} or newer, which alone makes profiles")
    platform = serve({"runtimes": {"java": str(new)}})
    arn = create(platform, package(tmp_path), TAGS)
    # The fourth request waits until it has been made.
    for _ in range(4):
        assert platform.invoke("f")[1].items() >= WANTED.items()
    [cache] = (platform.state / "shared").glob("*/profile.aot")
    assert cache.stat().st_size > 1 << 20
    # From now on each instance serves once.
    platform.client.tag_resource(Resource=arn, Tags={"uncia:keep-alive-ms": "0"})
    wait_for(lambda: platform.invoke("f")[1].items() >= (SHARED | WANTED).items())
