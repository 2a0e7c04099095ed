"""Functions that are images: layouts that the tests write, as boto3 deploys them."""

import hashlib
import json
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from patience import scaled

from uncia.functions.compiler import compile_c
from uncia.functions.images import Execution, Image, Layer, lay_over, write_image
from uncia.layouts import LayerWriter

from .conftest import ROLE, Join, Platform, Serve, names_below
from .test_serving import log

PATIENCE_S = scaled(60)
BOOTSTRAP = Path(__file__).with_name("image_bootstrap.c")

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def bootstrap() -> Path:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler to make a program for the images with")
    return compile_c(BOOTSTRAP)


class Images:
    """A folder of layouts."""

    def __init__(self, folder: Path, bootstrap: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._parts = folder.parent / "parts"
        self._parts.mkdir()
        self.base = self.layer({"bin/bootstrap": bootstrap.read_bytes()})

    def layer(self, files: Files) -> Layer:
        path = self._parts / str(len(list(self._parts.iterdir())))
        with path.open("wb") as file, LayerWriter(file) as writer:
            for name, content in files.items():
                writer.add_bytes(name, content, 0o755)
        return Layer(path)

    def image(self, name: str, *layers: Layer, **execution: Any) -> Image:
        """An image of the base and these layers, which answers what ``/file`` holds."""
        environment = {"ROOT_FILE": "/file", "COLOUR": "red"}
        values = {"entry_point": ("/bin/bootstrap",), "environment": environment} | execution
        return write_image(self.folder / name, [self.base, *layers], Execution(**values))


@pytest.fixture
def images(tmp_path: Path, bootstrap: Path) -> Images:
    return Images(tmp_path / "images", bootstrap)


@pytest.fixture
def start(serve: Serve, images: Images) -> Callable[[], Platform]:
    return lambda: serve({"images": [str(images.folder)]})


def create(platform: Platform, name: str, image: Image | str, **settings: Any) -> Any:
    uri = image if isinstance(image, str) else f"oci:{image.folder}:latest"
    arguments = {"FunctionName": name, "PackageType": "Image", "Role": ROLE} | settings
    return platform.client.create_function(Code={"ImageUri": uri}, **arguments)


def refusal(call: Callable[..., Any], *arguments: Any, **settings: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(*arguments, **settings)
    error = caught.value.response["Error"]
    assert error["Code"] == "InvalidParameterValueException"
    message: str = error["Message"]
    return message


def layers(platform: Platform) -> set[str]:
    return {path.name for path in (platform.state / "layers").iterdir()}


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_image_as_boto3_deploys_it(start: Callable[[], Platform], images: Images) -> None:
    platform = start()
    client = platform.client
    image = images.image("a", images.layer({"file": b"one"}), command=("main.handler",))
    made = create(platform, "f", image, Tags={"uncia:start-from": "fresh"})
    assert (made["PackageType"], made["State"]) == ("Image", "Active")
    assert made["CodeSha256"] == image.digest.removeprefix("sha256:")
    assert not {"Runtime", "Handler", "ImageConfigResponse"} & set(made)
    client.get_waiter("function_active_v2").wait(FunctionName="f")
    code = client.get_function(FunctionName="f")["Code"]
    assert code == {
        "RepositoryType": "ECR",
        "ImageUri": f"oci:{image.folder}:latest",
        "ResolvedImageUri": f"oci:{image.folder}@{image.digest}",
    }
    _, payload = platform.invoke("f", {"x": 1})
    assert payload == {
        "program": "/bin/bootstrap",
        "argument": "main.handler",
        "folder": "/",
        "file": "one",
        "colour": "red",
        "handler": "main.handler",
        "event": {"x": 1},
    }
    config = {"EntryPoint": ["bootstrap"], "Command": ["other", "b"], "WorkingDirectory": "/etc"}
    changed = client.update_function_configuration(
        FunctionName="f", ImageConfig=config, Environment={"Variables": {"COLOUR": "blue"}}
    )
    assert changed["ImageConfigResponse"] == {"ImageConfig": config}
    _, payload = platform.invoke("f")
    seen = [payload[key] for key in ("program", "argument", "folder", "colour", "handler")]
    assert seen == ["bootstrap", "other", "/etc", "blue", "other"]
    second = images.image("b", images.layer({"file": b"two"}))
    version = client.publish_version(FunctionName="f")["Version"]
    updated = client.update_function_code(
        FunctionName="f", ImageUri=f"oci:{second.folder}@{second.digest}"
    )
    assert updated["CodeSha256"] == second.digest.removeprefix("sha256:")
    assert updated["ImageConfigResponse"] == {"ImageConfig": config}
    assert platform.invoke("f")[1]["file"] == "two"
    assert platform.invoke("f", Qualifier=version)[1]["file"] == "one"


def test_an_image_that_serves_http(start: Callable[[], Platform], images: Images) -> None:
    platform = start()
    image = images.image("a", images.layer({"file": b"served"}))
    create(platform, "f", image, Tags={"uncia:architecture": "http"})
    url = platform.client.create_function_url_config(FunctionName="f", AuthType="NONE")
    with urllib.request.urlopen(url["FunctionUrl"], timeout=PATIENCE_S) as answer:
        assert (answer.status, answer.read()) == (200, b"served")


def test_a_function_of_the_catalogue_over_a_root(
    start: Callable[[], Platform], images: Images, runtimes: Path
) -> None:
    (python,) = runtimes.glob("python-*/root")
    archive = images.folder.parent / "python.tar"
    with archive.open("wb") as file, LayerWriter(file) as writer:
        # All but the platform's client, which comes with the function.
        for path in sorted(python.rglob("*")):
            name = path.relative_to(python).as_posix()
            if path.is_symlink():
                writer.add_link(name, str(path.readlink()))
            elif path.is_file() and not name.startswith("var/runtime/"):
                writer.add_file(name, path, path.stat().st_mode & 0o777)
    root = images.folder / "root"
    execution = Execution(("/bin/sh",), environment={"PATH": "/usr/bin:/var/lang/bin"})
    write_image(root, [Layer(archive)], execution)
    image = lay_over("hello", root, images.folder / "hello")
    platform = start()
    create(platform, "hello", image, MemorySize=256, Timeout=50)
    answer, payload = platform.invoke("hello", LogType="Tail")
    assert payload.get("message") == "hello", answer


def test_functions_share_layers_until_none_has_them(
    start: Callable[[], Platform], images: Images
) -> None:
    platform = start()
    shared = images.layer({"file": b"shared", "large": bytes(1 << 20)})
    selected = images.layer({"own": b"x"})
    create(platform, "a", images.image("one", shared))
    before = layers(platform)
    assert len(before) == 2
    create(platform, "b", images.image("two", shared, selected))
    assert len(layers(platform) - before) == 1
    assert before < layers(platform)
    for name in "ab":
        assert platform.invoke(name)[1]["file"] == "shared"
    # What is there of the shared layer is one copy, and nobody's but the platform's.
    (large,) = (platform.state / "layers").glob("*/files/large")
    assert large.stat().st_nlink == 1
    assert (platform.state / "layers").stat().st_mode & 0o777 == 0o700
    platform.client.delete_function(FunctionName="b")
    eventually(lambda: layers(platform) == before)
    platform.client.delete_function(FunctionName="a")
    eventually(lambda: not layers(platform) and not list((platform.state / "images").iterdir()))
    eventually(lambda: not list((platform.state / "staging").iterdir()))


def test_images_outlive_the_platform_and_even_their_layout(
    start: Callable[[], Platform], images: Images
) -> None:
    platform = start()
    image = images.image("a", images.layer({"file": b"kept"}))
    create(platform, "f", image)
    create(platform, "lost", images.image("b", images.layer({"file": b"lost"})))
    kept = layers(platform)
    assert platform.stop(signal.SIGKILL) == -signal.SIGKILL
    shutil.rmtree(image.folder)
    # A layer that no image has, one that was never completed, and one that somebody removed.
    left = platform.state / "layers" / hashlib.sha256(b"left").hexdigest()
    (left / "files").mkdir(parents=True)
    (platform.state / "staging" / "half" / "files").mkdir(parents=True)
    (lost,) = (
        path.parents[1]
        for path in (platform.state / "layers").glob("*/files/file")
        if path.read_bytes() == b"lost"
    )
    shutil.rmtree(lost)
    again = start()
    assert layers(again) == kept - {lost.name}
    eventually(lambda: not list((again.state / "staging").iterdir()))
    assert again.invoke("f")[1]["file"] == "kept"
    broken = again.client.get_function(FunctionName="lost")["Configuration"]
    assert (broken["State"], broken["StateReasonCode"]) == ("Failed", "InvalidImage")
    assert lost.name in broken["StateReason"]
    assert "update the function's code" in broken["StateReason"]
    uri = f"oci:{images.folder / 'b'}"
    again.client.update_function_code(FunctionName="lost", ImageUri=uri)
    assert again.invoke("lost")[1]["file"] == "lost"


def test_killed_while_it_unpacks(start: Callable[[], Platform], images: Images) -> None:
    platform = start()
    many: Files = {f"folder/{number}": b"x" for number in range(20_000)}
    image = images.image("a", images.layer(many | {"file": b"whole"}))

    def attempt() -> None:
        with pytest.raises(Exception, match=r"(?i)connect"):
            create(platform, "f", image)

    asker = threading.Thread(target=attempt)
    asker.start()
    staging = platform.state / "staging"
    eventually(lambda: any(staging.glob("*/files/folder/*")))
    platform.stop(signal.SIGKILL)
    asker.join(PATIENCE_S)
    half = list(staging.iterdir())
    again = start()
    assert half
    assert not list(staging.iterdir())
    assert again.client.list_functions()["Functions"] == []
    assert len(layers(again)) <= 1
    create(again, "f", image)
    assert again.invoke("f")[1]["file"] == "whole"


def test_what_cannot_be_is_a_sentence(start: Callable[[], Platform], images: Images) -> None:
    platform = start()
    client = platform.client
    image = images.image("a")
    uri = f"oci:{image.folder}"

    def message(uri: str, **settings: Any) -> str:
        return refusal(create, platform, "f", uri, **settings)

    assert "no address of a registry" in message("public.ecr.aws/x/y:latest")
    assert "in none of the folders" in message("oci:/etc")
    assert "no image :b in the layout; it has latest" in message(f"{uri}:b")
    assert "don't provide Handler or Runtime" in message(uri, Runtime="python3.12", Handler="a.b")
    tags = {"uncia:start-from": "zygote"}
    assert "an image brings its own" in message(uri, Tags=tags)
    (images.folder / "empty").mkdir()
    assert "has no file oci-layout" in message(f"oci:{images.folder / 'empty'}")
    silent = images.image("silent", entry_point=())
    assert "names no program" in message(f"oci:{silent.folder}")
    (images.folder / "link").symlink_to("/etc")
    assert "in none of the folders" in message(f"oci:{images.folder / 'link'}")

    # A layer that is not what its digest says, and one that leaves its folder.
    damaged = images.image("damaged", images.layer({"file": b"right"}))
    blob = damaged.layers[1].path
    content = blob.read_bytes()
    blob.unlink()
    blob.write_bytes(content.replace(b"right", b"wrong"))
    assert "is not what its digest says" in message(f"oci:{damaged.folder}")
    hostile = images.image("hostile", images.layer({"../../../escaped": b"x"}))
    assert "would leave the layer's folder" in message(f"oci:{hostile.folder}")
    assert "escaped" not in names_below(platform.state.parent)
    assert not layers(platform)
    eventually(lambda: not list((platform.state / "staging").iterdir()))

    platform.create("zip")
    text = refusal(client.update_function_code, FunctionName="zip", ImageUri=uri)
    assert "don't provide ImageUri" in text
    create(platform, "f", image)
    text = refusal(client.update_function_code, FunctionName="f", ZipFile=b"PK")
    assert "don't provide ZipFile" in text
    text = refusal(
        client.update_function_configuration, FunctionName="f", Handler="a.b", Runtime="python3.12"
    )
    assert "don't provide Handler" in text
    config = {"EntryPoint": ["/bin/nothing"]}
    client.update_function_configuration(FunctionName="f", ImageConfig=config)
    answer, payload = platform.invoke("f")
    assert answer["FunctionError"] == "Unhandled"
    assert payload["errorType"] == "Runtime.InvalidEntrypoint"
    assert "/bin/nothing" in payload["errorMessage"]


def test_no_image_is_taken_unless_a_folder_is_named(serve: Serve, images: Images) -> None:
    platform = serve()
    image = images.image("a")
    assert "start it with --images" in refusal(create, platform, "f", image)
    document = json.loads((image.folder / "index.json").read_text())
    assert document["manifests"][0]["digest"] == image.digest


def test_images_run_on_workers_that_joined(serve: Serve, images: Images, join: Join) -> None:
    controller = serve({"images": [str(images.folder)]}, options=["--controller"])
    a = join(controller, "a")
    shared = images.layer({"file": b"one", "large": bytes(3 << 20)})
    image = images.image("one", shared)
    create(controller, "f", image)
    create(controller, "g", images.image("two", shared, images.layer({"file": b"two"})))
    # What it was deployed from is gone, and no worker has ever seen it.
    shutil.rmtree(images.folder / "two")
    assert controller.invoke("f")[1]["file"] == "one"
    assert controller.invoke("g", {"x": 1})[1]["event"] == {"x": 1}
    names = {path.name for path in (a.state / "layers").iterdir()}
    assert len(names) == 3
    assert names == layers(controller)
    assert not list((a.state / "staging").iterdir())
    assert {row["worker"] for row in log(controller)} == {"a"}
    assert "package" in {span["name"] for span in log(controller, "spans")}
    create(controller, "server", image, Tags={"uncia:architecture": "http"})
    url = controller.client.create_function_url_config(FunctionName="server", AuthType="NONE")
    with urllib.request.urlopen(url["FunctionUrl"], timeout=PATIENCE_S) as answer:
        assert (answer.status, answer.read()) == (200, b"one")
    with pytest.raises(urllib.error.HTTPError) as missing:
        urllib.request.urlopen(f"{controller.url}/uncia/v1/layers/{'0' * 64}/..%2f..%2flock")
    assert missing.value.code == 404

    # A controller that is started again has the layers still.
    a.stop()
    controller.stop()
    again = serve({"images": [str(images.folder)]}, options=["--controller"])
    join(again, "b")
    assert again.invoke("g")[1]["file"] == "two"


def test_images_of_before_there_were_workers_say_what_to_do(
    serve: Serve, start: Callable[[], Platform], images: Images, join: Join
) -> None:
    alone = start()
    image = images.image("one", images.layer({"file": b"one"}))
    create(alone, "f", image)
    alone.stop()
    controller = serve({"images": [str(images.folder)]}, options=["--controller"])
    join(controller, "a")
    with pytest.raises(ClientError) as refused:
        controller.invoke("f")
    assert "update the function's code" in str(refused.value)
    uri = f"oci:{image.folder}:latest"
    controller.client.update_function_code(FunctionName="f", ImageUri=uri)
    assert controller.invoke("f")[1]["file"] == "one"
