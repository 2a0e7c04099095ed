"""Functions in containers of OCI runtimes, as clients ask for them.

What containers promise is tested in Rust.
"""

import json
import subprocess
import urllib.request
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from .conftest import Platform, Serve, package

SERVER = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = str(os.getpid()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

HTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""
PROCESS = "import os\ndef handler(event, context):\n    return os.getpid()\n"


@pytest.fixture(scope="module")
def oci(engine_binary: Path) -> dict[str, str | None]:
    text = subprocess.run([engine_binary, "probe"], capture_output=True, check=True).stdout
    runtimes: dict[str, str | None] = json.loads(text)["features"]["oci_runtimes"]
    return runtimes


@pytest.fixture(params=["crun", "runc", "runsc"])
def name(request: pytest.FixtureRequest, oci: dict[str, str | None]) -> str:
    name: str = request.param
    if not oci[name]:
        pytest.skip(f"{name} is not installed")
    return name


def test_a_function_and_a_server_in_containers(serve: Serve, name: str) -> None:
    platform = serve({"pause_after_ms": 0})
    client = platform.client
    tags = {"uncia:sandbox": name}
    platform.create("polls", PROCESS, Tags=tags)
    # Its program is process 1, and serves again once it was frozen.
    assert [platform.invoke("polls")[1] for _ in range(3)] == [1, 1, 1]
    files = {"server.py": SERVER}
    http = tags | {"uncia:architecture": "http"}
    platform.create("serves", files, Handler="server.py", Tags=http)
    client.add_permission(
        FunctionName="serves",
        StatementId="all",
        Action="lambda:InvokeFunctionUrl",
        Principal="*",
        FunctionUrlAuthType="NONE",
    )
    url = client.create_function_url_config(FunctionName="serves", AuthType="NONE")["FunctionUrl"]
    with urllib.request.urlopen(url) as answer:
        assert answer.read() == b"1"
    # Another sandbox is other instances.
    client.tag_resource(
        Resource=client.get_function(FunctionName="polls")["Configuration"]["FunctionArn"],
        Tags={"uncia:sandbox": "process"},
    )
    assert platform.invoke("polls")[1] == 2


def refusal(platform: Platform, tags: dict[str, str]) -> str:
    with pytest.raises(ClientError) as caught:
        platform.create("refused", PROCESS, Tags=tags)
    message: str = caught.value.response["Error"]["Message"]
    return message


def test_what_cannot_be_a_container_is_refused(serve: Serve, oci: dict[str, str | None]) -> None:
    platform = serve()
    for kind in ("pool", "zygote", "function_zygote"):
        message = refusal(platform, {"uncia:sandbox": "crun", "uncia:start-from": kind})
        assert "must be fresh or prepared with the tag uncia:sandbox set to crun" in message
    assert "must be process, crun, runc or runsc" in refusal(platform, {"uncia:sandbox": "docker"})
    missing = [name for name, version in oci.items() if not version]
    for name in missing:
        message = refusal(platform, {"uncia:sandbox": name})
        assert f"there is no program {name} on this machine: install it (" in message
    assert platform.client.list_functions()["Functions"] == []


def test_a_platform_whose_functions_are_containers(serve: Serve, name: str) -> None:
    platform = serve({"sandbox": name, "start_from": "zygote"})
    platform.create("f", PROCESS)
    assert platform.invoke("f")[1] == 1
    extension = {"extensions/quiet": "#!/bin/sh\nexec sleep 1000\n"}
    layer = platform.client.publish_layer_version(
        LayerName="extension", Content={"ZipFile": package(extension)}
    )
    platform.client.update_function_configuration(
        FunctionName="f", Layers=[layer["LayerVersionArn"]]
    )
    # It may not be executed, and so is none.
    assert platform.invoke("f")[1] == 1
