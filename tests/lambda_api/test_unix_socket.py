"""A platform on a unix socket, for clients without boto3."""

import base64
import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from uncia.platforms import wire

from .conftest import OK, ROLE, Serve, package


def ask(path: Path, method: str, resource: str, body: Any = None) -> Any:
    sent = None if body is None else json.dumps(body).encode()
    with wire.open_path(f"unix:{path}", resource, 60, body=sent, method=method) as answer:
        return json.loads(answer.read() or b"null")


def test_a_socket_serves_the_api_to_its_owner(serve: Serve, tmp_path: Path) -> None:
    # An address has room for 107 bytes; a path may be longer.
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    path = folder / "lambda.sock"
    platform = serve(options=["--socket", path])
    assert path.stat().st_mode & 0o777 == 0o600
    code = base64.b64encode(package(OK)).decode()
    made = {
        "FunctionName": "f",
        "Runtime": "python3.11",
        "Handler": "handler.handler",
        "Role": ROLE,
        "Code": {"ZipFile": code},
    }
    assert ask(path, "POST", "/2015-03-31/functions", made)["State"] == "Active"
    answer = ask(path, "POST", "/2015-03-31/functions/f/invocations", {"a": 1})
    assert answer == {"got": {"a": 1}}
    assert platform.invoke("f", {"a": 2})[1] == {"got": {"a": 2}}
    url = ask(path, "POST", "/2021-10-31/functions/f/url", {"AuthType": "NONE"})["FunctionUrl"]
    assert url.startswith(f"http://{platform.address}/url/")
    assert platform.stop() == 0
    assert not path.exists()


def test_curl_invokes_by_a_socket(serve: Serve, tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    path = tmp_path / "s"
    serve(options=["--socket", path]).create("f")
    done = subprocess.run(
        [
            *(curl, "--silent", "--fail", "--unix-socket", str(path), "--data", '{"b": 1}'),
            "http://localhost/2015-03-31/functions/f/invocations",
        ],
        check=True,
        capture_output=True,
    )
    assert json.loads(done.stdout) == {"got": {"b": 1}}


def test_a_killed_platforms_socket_is_taken_over_and_a_live_one_is_not(
    serve: Serve, engine_binary: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    first = serve(options=["--socket", path])
    command = [engine_binary, "serve", "--listen", "127.0.0.1:0", "--messages", "text"]

    def refused(state: str, *options: str | Path) -> str:
        done = subprocess.run(
            [*command, "--state", tmp_path / state, *options], capture_output=True, text=True
        )
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    assert f"another process listens on {path}: stop it" in refused("other", "--socket", path)
    assert ask(path, "GET", "/uncia/v1/health")["functions"] == 0
    first.stop(signal.SIGKILL)
    assert path.is_socket()
    second = serve(options=["--socket", path])
    assert ask(path, "GET", "/uncia/v1/health")["functions"] == 0
    assert second.stop(signal.SIGINT) == 0
    assert not path.exists()
    path.write_text("kept")
    assert "is there already and no socket" in refused("other", "--socket", path)
    assert path.read_text() == "kept"
    # Of several, one that cannot be leaves none of the others.
    fine = tmp_path / "fine"
    missing = tmp_path / "no" / "s"
    assert "No such file" in refused("other", "--socket", fine, "--socket", missing)
    assert not fine.exists()


def test_bills_come_from_the_owner_alone(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "s"
    platform = serve(options=["--socket", path])
    for address, method, resource in (
        (platform.address, "PUT", "bills"),
        (platform.address, "GET", "viewers"),
    ):
        body = b"{}" if method == "PUT" else None
        with pytest.raises(OSError, match="403"):
            wire.open_path(address, f"/uncia/v1/{resource}", 60, body=body, method=method)
    assert ask(path, "GET", "/uncia/v1/viewers") == {"viewers": 0}
    assert ask(path, "PUT", "/uncia/v1/bills", {}) is None
