"""Errors of a Docker Engine that is not there, is none, refuses, or ends in mid-run; its images."""

import hashlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import scaled

from uncia.errors import RunFailedError, UnciaError
from uncia.layouts import Execution, Layer, LayerWriter, read_image, write_image
from uncia.platforms import (
    Context,
    Deployment,
    FunctionSpec,
    Target,
    docker,
    docker_images,
    docker_socket,
)
from uncia.platforms.docker_left import SLICE
from uncia.platforms.journal import Journal, Resource
from uncia.platforms.shims.docker_engine import Engine, EngineError, RefusedError

VERSION = {"/version": {"Version": "20.10", "ApiVersion": "1.41"}, "/info": {"NCPU": 2}}


class Listener:
    """A server at a unix socket that answers each connection as it is told.

    Attributes:
        answer: gets a request's head, and returns the bytes of the answer; None for silence until
            the end.
        asked: the first lines of requests.
    """

    def __init__(self, path: Path, answer: Callable[[str], bytes | None]) -> None:
        self.path, self.answer = str(path), answer
        self.asked: list[str] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._silent: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            head = self._request(connection)
            self.asked.append(head.split("\r\n")[0])
            answer = self.answer(head)
            if answer is None:
                self._silent.append(connection)
                continue
            connection.sendall(answer)
            connection.close()

    @staticmethod
    def _request(connection: socket.socket) -> str:
        """The head of a request; what follows it is read, too, as unread bytes break a socket."""
        content = b""
        while b"\r\n\r\n" not in content and (part := connection.recv(1 << 16)):
            content += part
        head, _, body = content.partition(b"\r\n\r\n")
        chunked = b"transfer-encoding: chunked" in head.lower()
        while chunked and not body.endswith(b"0\r\n\r\n") and (part := connection.recv(1 << 16)):
            body += part
        return head.decode(errors="replace")

    def close(self) -> None:
        """Listen no more; the socket's file is gone, too. May be called twice."""
        if self._listener.fileno() < 0:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        Path(self.path).unlink()
        for connection in self._silent:
            connection.close()


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Callable[..., Listener]]:
    running: list[Listener] = []

    def start(answer: Callable[[str], bytes | None]) -> Listener:
        running.append(Listener(tmp_path / "engine.sock", answer))
        return running[-1]

    yield start
    for listener in running:
        listener.close()


def answer_of(document: Any, status: int = 200) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def refusal(path: Path | str, timeout_s: float = 10) -> EngineError:
    with pytest.raises(EngineError) as raised:
        Engine(str(path), timeout_s).version()
    assert str(path) in raised.value.message
    return raised.value


def test_a_socket_that_is_not_there(tmp_path: Path) -> None:
    error = refusal(tmp_path / "none.sock")
    assert error.message == f"no Docker Engine is at {tmp_path}/none.sock: no such file"
    assert error.hint is not None
    assert "DOCKER_HOST" in error.hint
    refusal(tmp_path / "no" / "folder.sock")
    with pytest.raises(RunFailedError, match="no such file\nStart it"):
        docker_socket.ready(str(tmp_path / "none.sock"))


def test_a_socket_that_nobody_listens_at(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "left.sock"))
    left.close()
    assert "the connection was refused" in refusal(tmp_path / "left.sock").message
    (tmp_path / "file").touch()
    assert "no Docker Engine listens" in refusal(tmp_path / "file").message


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_socket_that_is_closed_to_this_user(tmp_path: Path, listen: Callable[..., Any]) -> None:
    Path(listen(lambda _: answer_of({})).path).chmod(0)
    error = refusal(tmp_path / "engine.sock")
    assert "this user may not use" in error.message


def test_a_path_longer_than_an_address_of_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    os.chdir(folder)
    near = Listener(Path("s"), lambda _: answer_of(VERSION["/version"]))
    assert Engine(str(folder / "s")).version()["ApiVersion"] == "1.41"
    near.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "no Docker Engine (BadStatusLine"),
        (b"\x00\x01\x02\x03\n\n", "no Docker Engine (BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n<html></p", "no Docker Engine (the answer"),
        (answer_of({"hello": "world"}), "no Docker Engine (its version is none)"),
        (answer_of([1]), "no Docker Engine (its version is none)"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{", "broke off (GET /version)"),
        (b"", "broke off (GET /version)"),
    ],
)
def test_garbage(
    tmp_path: Path, listen: Callable[..., Listener], answer: bytes, reason: str
) -> None:
    listen(lambda _: answer)
    assert reason in refusal(tmp_path / "engine.sock").message


def test_silence(tmp_path: Path, listen: Callable[..., Listener]) -> None:
    listen(lambda _: None)
    error = refusal(tmp_path / "engine.sock", 0.2)
    assert "was silent for 0.2 s (GET /version)" in error.message


def test_an_engine_whose_queue_is_full(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(0)
        before = []
        while True:
            before.append(socket.socket(socket.AF_UNIX))
            before[-1].setblocking(False)
            try:
                before[-1].connect(str(path))
            except BlockingIOError:
                break
        assert "took no connection for 0.1 s" in refusal(path, 0.1).message

        def serve() -> None:
            time.sleep(0.1)
            for _ in before:
                accepted, _ = listener.accept()
                with accepted:
                    if accepted.recv(1 << 16):
                        accepted.sendall(answer_of(VERSION["/version"]))

        threading.Thread(target=serve, daemon=True).start()
        for it in before:
            it.close()
        assert Engine(str(path), scaled(10)).version()["Version"] == "20.10"


def test_what_an_engine_refuses(tmp_path: Path, listen: Callable[..., Listener]) -> None:
    listener = listen(lambda _: answer_of({"message": "no such image: x"}, 404))
    with pytest.raises(RefusedError, match=r"^no such image: x$") as raised:
        Engine(listener.path).ask("POST", "/containers/create", {"Image": "x"}, {"name": "a b"})
    assert raised.value.status == 404
    assert listener.asked == ["POST /containers/create?name=a+b HTTP/1.1"]
    listener.answer = lambda _: b"HTTP/1.1 500 X\r\ncontent-length: 3\r\n\r\nbad"
    with pytest.raises(RefusedError, match=r"^status 500: bad$"):
        Engine(listener.path).ask("GET", "/info")


def test_which_socket_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert docker_socket.chosen() == "/var/run/docker.sock"
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/other.sock")
    assert docker_socket.chosen() == "/run/other.sock"
    assert docker_socket.chosen("/third.sock") == "/third.sock"
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    with pytest.raises(UnciaError, match=r"DOCKER_HOST is tcp://10.0.0.1:2375: .* unix socket"):
        docker_socket.chosen()


FILE = """
name: demo
platform: {kind: docker%s}
functions:
  hello: {source: hello%s}
experiments:
  one: {function: hello, arrivals: {kind: burst, sizes: [1]}}
"""


@pytest.mark.parametrize(
    ("options", "changes", "line", "message"),
    [
        (", socket: 'tcp://a:1'", "", 3, "reaches an Engine by a unix socket alone"),
        (", idle: frozen", "", 3, "idle"),
        ("", ", memory: 5MB", 5, "5MB is less than Docker takes, 6MB"),
        ("", ", cpu: 1mvCPU", 5, "is less than Docker takes, 0.01vCPU"),
        ("", ", share_state: warm", 5, "the platform docker has no such setting"),
        ("", ", package: container", 5, "the platform docker has no such setting"),
        ("", ", runtime: ruby", 5, "which the platform docker does not serve"),
    ],
)
def test_what_it_cannot_do_is_refused_with_file_and_line(
    tmp_path: Path,
    options: str,
    changes: str,
    line: int,
    message: str,
    command: Callable[..., tuple[int, str, str]],
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(FILE.lstrip() % (options, changes))
    code, _, errors = command("run", "--dry-run", file)
    assert code == 2
    assert message in " ".join(errors.split())
    assert f"run.yaml:{line - 1}" in errors


@pytest.fixture
def function(tmp_path: Path) -> FunctionSpec:
    layer = tmp_path / "layer.tar"
    with layer.open("wb") as file, LayerWriter(file) as writer:
        writer.add_bytes("var/task/handler.py", b"")
    image = write_image(tmp_path / "image", [Layer(layer)], Execution())
    return FunctionSpec("f", image=image.folder, runtime="python", timeout=round(scaled(5) * 1e9))


def test_an_image_as_an_engine_loads_it(function: FunctionSpec) -> None:
    assert function.image is not None
    image = read_image(function.image)
    made = docker_images.archive("My_Function", image, "python", {"uncia.function": "My_Function"})
    with tarfile.open(fileobj=io.BytesIO(b"".join(made.blocks()))) as archive:
        files = {it.name: archive.extractfile(it).read() for it in archive}  # type: ignore[union-attr]
    [manifest] = json.loads(files["manifest.json"])
    assert manifest["RepoTags"] == [made.name]
    assert re.fullmatch(r"uncia/my-function-[0-9a-f]{8}:latest", made.name)
    config = files[manifest["Config"]]
    assert manifest["Config"] == f"{hashlib.sha256(config).hexdigest()}.json"
    document = json.loads(config)
    layers = [files[name] for name in manifest["Layers"]]
    digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    assert document["rootfs"]["diff_ids"] == digests
    assert document["config"]["Labels"] == {"uncia.function": "My_Function"}
    assert document["config"]["Entrypoint"] == ["python3", "/var/runtime/uncia/python_handler.py"]
    with tarfile.open(fileobj=io.BytesIO(layers[-1])) as added:
        assert "var/runtime/uncia/python_handler.py" in added.getnames()
    image.layers[0].path.unlink()
    with pytest.raises(UnciaError, match="lacks the layer"):
        docker_images.archive("f", image, "python", {})


def test_an_engine_that_ends_in_mid_run(
    tmp_path: Path,
    listen: Callable[..., Listener],
    function: FunctionSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def answer(head: str) -> bytes:
        path = head.split()[1].partition("?")[0]
        if path == "/containers/create":
            return b""  # it breaks off
        return answer_of(VERSION.get(path, {}))

    listener = listen(answer)
    journal = Journal("run", None)
    lines: list[str] = []
    options = docker.Options(kind="docker", socket=listener.path)
    platform = docker.connect(options, Context("run", journal, lines.append))
    platform.start()
    deployed = platform.deploy(function)
    broken = platform.invoke(deployed, {})
    assert broken.status == 503
    assert "broke off (POST /containers/create?name=" in broken.body.decode()
    listener.close()
    gone = platform.invoke(deployed, {})
    assert "no such file" in json.loads(gone.body)["errorMessage"]
    warnings = platform.collect().warnings
    assert any("broke off" in it and "(once)" in it for it in warnings)
    platform.close()
    # What may be left is in a message, and known to `uncia clean`.
    assert [it.kind for it in journal.outstanding] == ["function"]
    assert any("docker: function f could not be removed" in it for it in lines)
    journal.close()
    assert journal.path.exists()

    def empty(head: str) -> bytes:
        return answer_of([]) if "/json?" in head.split()[1] else answer_of({})

    again = listen(empty)
    left = docker.clean(journal.outstanding, lines.append)
    assert left == journal.outstanding
    assert [it.split()[1].partition("?")[0] for it in again.asked] == [
        "/containers/json",
        "/images/json",
    ]
    assert all("uncia.function%3Df" in it for it in again.asked)


def test_an_engine_that_ends_while_it_takes_an_image(
    tmp_path: Path,
    listen: Callable[..., Listener],
    function: FunctionSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    listener = listen(
        lambda head: (
            answer_of([] if "/json?" in head else VERSION.get(head.split()[1], {}))
            if "images/load" not in head
            else answer_of({"error": "no space left on device"})
        )
    )
    journal = Journal("run", None)
    platform = docker.connect(
        docker.Options(kind="docker", socket=listener.path), Context("run", journal)
    )
    platform.start()
    with pytest.raises(RunFailedError, match=r"f: its image is not taken: no space left on device"):
        platform.deploy(function)
    assert journal.outstanding == []
    # One that ends, or is silent, may have taken it.
    listener.answer = lambda head: b"" if "images/load" in head else answer_of([])
    with pytest.raises(RunFailedError, match=r"f: its image is not taken: .* broke off"):
        platform.deploy(function)
    assert [it.kind for it in journal.outstanding] == ["function"]
    platform.remove(Deployment("f"))
    platform.close()
    journal.close()


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = Journal("run", None)
    yield made
    made.close()


def test_a_ctrl_c_while_an_engine_takes_an_image(
    function: FunctionSpec, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[BaseException] = [KeyboardInterrupt()]

    def ask(_: Engine, __: str, path: str, *___: Any, **____: Any) -> Any:
        if path == "/images/load" and loads:
            raise loads.pop()
        return []

    monkeypatch.setattr(Engine, "ask", ask)
    options = docker.Options(kind="docker", socket="/none")
    platform = docker.connect(options, Context("run", journal))
    with pytest.raises(KeyboardInterrupt):
        platform.deploy(function)
    # It may have taken it, and it appears after this.
    assert [it.kind for it in journal.outstanding] == ["function"]
    platform._load(function)
    platform._clear(journal.outstanding)
    assert journal.outstanding == []


WORDS = """
import json, sys
news = {"invocations": [{"invocation": "a"}], "spans": [], "instances": [], "problems": {}}
sys.stdin.read()
line = json.dumps(news)
"""


@pytest.mark.parametrize(
    ("ends", "rows", "is_said"),
    [
        ("print(line)", 1, False),
        ("print(line); print(line)", 2, False),
        ("print(line); print(line[:9], end='')", 1, True),
        ("pass", 0, True),
        ("import time; time.sleep(600)", 0, True),
    ],
)
def test_the_last_words_of_a_server_are_kept_or_missed(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, ends: str, rows: int, is_said: bool
) -> None:
    monkeypatch.setattr(docker, "_END_TIMEOUT_S", 0.0 if "sleep" in ends else scaled(60))
    options = docker.Options(kind="docker", socket="/none")
    platform = docker.connect(options, Context("run", journal))
    process = subprocess.Popen(
        [sys.executable, "-c", WORDS + ends],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    # A group that is not there is gone.
    resources = [Resource("docker", "group", "docker-none-of-this-name")]
    journal.created(resources[0])
    platform._running["f"] = docker._Running(process, resources, Target("http://x/", "POST", {}))
    platform.remove(Deployment("f"))
    collected = platform.collect()
    assert collected.invocations.num_rows == rows
    assert any("last rows are missing" in it for it in collected.warnings) == is_said
    assert journal.outstanding == []


def test_a_slice_is_journalled_and_a_container_ends_at_once(
    function: FunctionSpec, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Resource] = []
    monkeypatch.setattr(journal, "created", seen.append)
    options = docker.Options(kind="docker", socket="/none")
    platform = docker.connect(options, Context("run", journal))
    for driver, detail in (
        ("systemd", {SLICE: "uncia_docker_f.slice"}),
        ("cgroupfs", {}),
    ):
        platform._info = {"CgroupDriver": driver}
        with pytest.raises(RunFailedError, match="no such file"):
            platform.deploy(function)
        assert (seen[0].kind, seen[0].id, seen[0].detail) == ("group", "docker-f", detail)
        seen.clear()
    assert platform._config(function)["container"]["StopTimeout"] == 0
