"""Packages that are fetched at a start: from a real registry, and from a real store."""

import io
import json
import os
import shutil
import signal
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from run_helpers import Uncia, function

from uncia import engine, services
from uncia.errors import UnciaError
from uncia.functions.images import Execution, Image, Layer, distribution, write_image
from uncia.layouts import LayerWriter
from uncia.platforms import boto, processes
from uncia.platforms.journal import Resource
from uncia.platforms.server import Server
from uncia.services import docker_registry

FILE = """\
name: fetched
seed: 1
platform: {{kind: embedded, code_cache: {cache}}}
services: {{{services}}}
functions:
  f: {{{function}, memory: 256MB, keep_alive: 0ms}}
experiments:
  first: {{function: f, arrivals: {{kind: burst, sizes: [2]}}}}
  second: {{function: f, pause: 1s, arrivals: {{kind: burst, sizes: [1]}}}}
"""
BOOTSTRAP = Path(__file__).parents[1] / "lambda_api/image_bootstrap.c"
MANIFEST = """\
name: rooted
description: Answers what is in the root.
runtimes: {provided: {source: bootstrap.c}}
parameters: {}
sizes: {test: {}, small: {}, large: {}}
answer: {text: Anything.}
memory: 128MB
timeout: 50s
"""


@pytest.fixture
def has_registry() -> None:
    """Skips a test where there is no server of images."""
    try:
        docker_registry.PROGRAM.find()
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")


@pytest.fixture
def registry(has_registry: None, tmp_path: Path) -> Iterator[docker_registry.Server]:
    """A registry of a test's own."""
    del has_registry
    server = docker_registry.Server(tmp_path / "registry")
    yield server
    server.stop()


def run(uncia: Uncia, folder: Path, **parts: str) -> Path:
    path = folder / "fetched.yaml"
    path.write_text(FILE.format(**parts))
    process = uncia("run", path, "--out", folder / "out")
    out, err = process.communicate()
    assert process.returncode == 0, out + err
    rows = pyarrow.parquet.read_table(folder / "out" / "invocations.parquet")
    assert rows["outcome"].to_pylist() == ["ok"] * 3
    return folder / "out"


def starts(folder: Path) -> dict[str, list[set[str]]]:
    """The phases of each invocation, by experiment, in the order of their ends."""
    rows = pyarrow.parquet.read_table(folder / "invocations.parquet").to_pylist()
    spans = pyarrow.parquet.read_table(folder / "spans.parquet").to_pylist()
    phases: dict[str, list[set[str]]] = {}
    for row in rows:
        names = {span["name"] for span in spans if span["invocation"] == row["invocation"]}
        phases.setdefault(row["experiment"], []).append(names)
    return phases


def bootstrap(folder: Path) -> str:
    """Write a function that is one static program, and return its source."""
    source = folder / "rooted" / "provided"
    source.mkdir(parents=True)
    (source / "bootstrap.c").write_bytes(BOOTSTRAP.read_bytes())
    (folder / "rooted" / "function.yaml").write_text(MANIFEST)
    return "source: ./rooted"


@pytest.mark.usefixtures("has_registry")
@pytest.mark.parametrize("cache", ["1GB", "0B"])
def test_containers_are_pulled_at_a_start(
    tmp_path: Path, uncia: Uncia, state_home: Path, cache: str
) -> None:
    it = f"{bootstrap(tmp_path)}, package: container, filler: 1MB"
    out = run(uncia, tmp_path, cache=cache, services="registry: {}", function=it)
    phases = starts(out)
    pulled = {"fetch", "unpack"}
    assert any(pulled <= names for names in phases["first"])
    assert all("mount" in names for names in [*phases["first"], *phases["second"]])
    # What nobody runs on any more is gone, unless the cache has room for it.
    (second,) = phases["second"]
    assert (pulled <= second) == (cache == "0B")
    assert not list((state_home / "services").iterdir())
    assert not list((state_home / "journal").iterdir())


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("cache", ["1GB", "0B"])
def test_zip_files_are_fetched_at_a_start(
    tmp_path: Path,
    uncia: Uncia,
    state_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    cache: str,
) -> None:
    # The run's own store is what has them, whatever the shell names.
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    function(tmp_path / "f", "def handler(event, context):\n    return {}\n")
    it = "source: ./f, code: fetched, filler: 60MB"
    out = run(uncia, tmp_path, cache=cache, services="store: {}", function=it)
    phases = starts(out)
    assert any({"fetch", "unpack"} <= names for names in phases["first"])
    (second,) = phases["second"]
    assert ("unpack" in second) == (cache == "0B")
    assert not list((state_home / "journal").iterdir())


def image(folder: Path, archive: bytes) -> Image:
    """An image of one layer, with this archive."""
    layer = folder / "layer"
    layer.write_bytes(archive)
    return write_image(folder / "layout", [Layer(layer)], Execution(("/bootstrap",)))


def plain(size: int = 1) -> bytes:
    file = io.BytesIO()
    with LayerWriter(file) as writer:
        writer.add_bytes("bootstrap", b"#" * size, 0o755)
    return file.getvalue()


def entry(name: str, **fields: Any) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo(name)
        for key, value in fields.items():
            setattr(info, key, value)
        archive.addfile(info)
    return file.getvalue()


def many() -> bytes:
    """As many files as no layer may hold."""
    blocks = (tarfile.TarInfo(f"{number}").tobuf() for number in range(250_001))
    return b"".join(blocks) + bytes(1024)


@pytest.fixture
def platform(registry: docker_registry.Server, tmp_path: Path) -> Iterator[tuple[Any, Path]]:
    """A platform that takes images from the registry: its client, and its state folder."""
    assert engine.binary()
    state = tmp_path / "state"
    server = Server(state, {"registries": [registry.address], "images": [str(tmp_path)]})
    yield boto.client(server.address), state
    assert server.stop()


def create(client: Any, reference: str, name: str = "f") -> None:
    client.create_function(
        FunctionName=name,
        PackageType="Image",
        Code={"ImageUri": reference},
        Role="arn:aws:iam::000000000000:role/any",
    )


def refused(client: Any, state: Path) -> str:
    """Invoke the function, which cannot be started; returns why. Nothing is left of the attempt."""
    with pytest.raises(client.exceptions.ServiceException) as error:
        client.invoke(FunctionName="f")
    assert not list((state / "staging").iterdir())
    assert not list((state / "fetched/layers").iterdir())
    return str(error.value)


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (lambda: entry("../escape"), "'..'|\\.\\."),
        (many, "more than 250000 files"),
    ],
)
def test_what_no_layer_may_hold(
    platform: tuple[Any, Path],
    registry: docker_registry.Server,
    tmp_path: Path,
    archive: Callable[[], bytes],
    message: str,
) -> None:
    client, state = platform
    create(client, distribution.push(image(tmp_path, archive()), registry.address, "bad"))
    with pytest.raises(client.exceptions.ServiceException, match=message):
        client.invoke(FunctionName="f")
    refused(client, state)


def blobs(registry_folder: Path, digest: str) -> Path:
    digits = digest.removeprefix("sha256:")
    root = registry_folder / "data/docker/registry/v2/blobs/sha256"
    return root / digits[:2] / digits / "data"


def test_a_layer_that_is_another(
    platform: tuple[Any, Path], registry: docker_registry.Server, tmp_path: Path
) -> None:
    client, state = platform
    pushed = image(tmp_path, plain())
    create(client, distribution.push(pushed, registry.address, "bad"))
    (layer,) = pushed.layers
    data = blobs(tmp_path / "registry", f"sha256:{layer.path.name}")
    content = bytearray(data.read_bytes())
    content[600] ^= 1
    data.write_bytes(content)
    assert "is not what its digest says" in refused(client, state)
    data.unlink()
    assert "could not be fetched" in refused(client, state)


def test_a_registry_that_is_killed(
    platform: tuple[Any, Path], registry: docker_registry.Server, tmp_path: Path
) -> None:
    client, state = platform
    create(client, distribution.push(image(tmp_path, plain()), registry.address, "gone"))
    os.kill(registry.process.pid, signal.SIGKILL)
    registry.process.wait()
    assert f"the registry {registry.address} does not give" in refused(client, state)


def test_what_is_kept_is_pulled_nevertheless(
    platform: tuple[Any, Path], registry: docker_registry.Server, tmp_path: Path
) -> None:
    client, state = platform
    made = image(tmp_path, plain())
    pulled = distribution.push(made, registry.address, "pulled")
    create(client, f"oci:{made.folder}", "kept")
    create(client, pulled, "pulled")
    create(client, distribution.push(made, registry.address, "elsewhere"), "elsewhere")
    (layer,) = (state / "layers").iterdir()
    assert not list((state / "fetched/layers").iterdir())
    assert "FunctionError" in client.invoke(FunctionName="pulled"), "it is no program"
    assert [path.name for path in (state / "fetched/layers").iterdir()] == [layer.name]
    # Each is kept by its name, and goes alone.
    assert len(list((state / "fetched/images").iterdir())) == 2
    client.delete_function(FunctionName="pulled")
    deadline = time.monotonic() + 60
    while len(list((state / "fetched/images").iterdir())) > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(list((state / "fetched/images").iterdir())) == 1
    assert len(list((state / "images").iterdir())) == 1
    assert "FunctionError" in client.invoke(FunctionName="elsewhere")


def test_only_registries_that_are_allowed(platform: tuple[Any, Path]) -> None:
    client, _ = platform
    with pytest.raises(client.exceptions.InvalidParameterValueException, match="takes no images"):
        create(client, "127.0.0.1:1/uncia/f:latest")


def test_blobs_are_pushed_once_and_in_pieces(
    registry: docker_registry.Server, tmp_path: Path
) -> None:
    made = image(tmp_path, plain(5_000_000))
    reference = distribution.push(made, registry.address, "a/b", chunk=1_000_000)
    assert reference == f"{registry.address}/a/b@{made.digest}"
    (layer,) = made.layers
    data = blobs(tmp_path / "registry", f"sha256:{layer.path.name}")
    assert data.read_bytes() == layer.path.read_bytes()
    before = data.stat().st_mtime_ns
    assert distribution.push(made, registry.address, "a/b") == reference
    assert data.stat().st_mtime_ns == before
    distribution.empty(registry.address, "a/b")
    # Again: it is gone already.
    distribution.empty(registry.address, "a/b")


def test_a_registry_that_exists_keeps_what_others_pushed(
    registry: docker_registry.Server, tmp_path: Path, uncia: Uncia, state_home: Path
) -> None:
    kept = distribution.push(image(tmp_path, plain()), registry.address, "others")
    it = f"{bootstrap(tmp_path)}, package: container"
    services = f"registry: {{address: 'http://{registry.address}'}}"
    run(uncia, tmp_path, cache="1GB", services=services, function=it)
    manifests = tmp_path / "registry/data/docker/registry/v2/repositories"
    tags = {path.parents[3].name for path in manifests.rglob("tags/*/current")}
    assert tags == {"others"}
    assert kept.endswith(image_digest(tmp_path / "layout"))
    assert not list((state_home / "journal").iterdir())


def test_a_tag_that_cannot_be_deleted(registry: docker_registry.Server, tmp_path: Path) -> None:
    made = image(tmp_path, plain())
    distribution.push(made, registry.address, "torn")
    # Its manifest is lost, and the tag is listed nevertheless.
    root = tmp_path / "registry/data/docker/registry/v2/repositories/torn/_manifests/revisions"
    shutil.rmtree(root / "sha256" / made.digest.removeprefix("sha256:"))
    with pytest.raises(UnciaError, match="does not delete torn:"):
        distribution.empty(registry.address, "torn")


def test_a_registry_that_is_down_keeps_no_other_from_being_cleaned(
    registry: docker_registry.Server, tmp_path: Path
) -> None:
    distribution.push(image(tmp_path, plain()), registry.address, "left")
    down, up = (
        Resource(services.PLATFORM, "repository", "left", {"service": "registry", "address": it})
        for it in ("127.0.0.1:1", registry.address)
    )
    lines: list[str] = []
    assert services.clean([down, up], lines.append) == [up]
    (line,) = lines
    assert "127.0.0.1:1 cannot be asked" in line
    manifests = tmp_path / "registry/data/docker/registry/v2/repositories"
    assert not list(manifests.rglob("tags/*/current"))


def image_digest(layout: Path) -> str:
    digest: str = json.loads((layout / "index.json").read_text())["manifests"][0]["digest"]
    return digest


@pytest.mark.usefixtures("has_registry")
def test_a_killed_run_leaves_a_registry_that_clean_removes(
    tmp_path: Path, uncia: Uncia, state_home: Path
) -> None:
    it = f"{bootstrap(tmp_path)}, package: container"
    path = tmp_path / "fetched.yaml"
    text = FILE.format(cache="0B", services="registry: {}", function=it)
    path.write_text(text.replace("pause: 1s", "pause: 10min"))
    process = uncia("run", path, "--out", tmp_path / "out")
    out = tmp_path / "out"
    deadline = time.monotonic() + 120
    while not list(out.rglob("*invocations*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    (folder,) = (state_home / "services").iterdir()
    (server,) = processes.with_argument(str(docker_registry.configuration(folder)))
    cleaning = uncia("clean")
    output, errors = cleaning.communicate()
    assert cleaning.returncode == 0, output + errors
    assert not processes.alive(server)
    assert not list((state_home / "services").iterdir())
