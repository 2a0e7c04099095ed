"""Frameworks and languages as their users know them, unchanged, behind a function's URL."""

import io
import json
import os
import shutil
import subprocess
import sysconfig
import zipfile
from pathlib import Path

import pytest
from patience import scaled

from .conftest import Platform
from .test_http_server import ask, create
from .test_http_streams import WebSocket, asked
from .test_serving import log

REQUIREMENTS = ["functions-framework", "fastapi", "uvicorn", "websockets"]

# What runs `functions-framework` and `uvicorn app:app` from the command line.
FRAMEWORK = """
import runpy
runpy.run_module("functions_framework", run_name="__main__", alter_sys=True)
"""
FUNCTION = """
import functions_framework

@functions_framework.http
def hello(request):
    if request.path == "/stream":
        return (f"part {number}," for number in range(3)), 200, {"x-own": "1"}
    return {"path": request.path, "body": len(request.get_data())}
"""
UVICORN = """
import os, uvicorn
uvicorn.run("app:app", host="0.0.0.0", port=int(os.environ["PORT"]), log_level="warning")
"""
APPLICATION = """
import asyncio
from fastapi import FastAPI, Request, WebSocket
from fastapi.responses import StreamingResponse

app, told = FastAPI(), asyncio.Queue()

@app.get("/items/{number}")
async def item(number: int):
    return {"number": number}

@app.post("/tell")
async def tell(request: Request):
    await told.put(await request.json())

@app.get("/events")
async def events():
    async def each():
        while (text := await told.get()) != "end":
            yield f"data: {text}\\n\\n"
    return StreamingResponse(each(), media_type="text/event-stream")

@app.websocket("/chat")
async def chat(websocket: WebSocket):
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(text.upper())
"""
GO = """
package main

import ("fmt"; "net/http"; "os")

func main() {
    http.HandleFunc("/", func(answer http.ResponseWriter, request *http.Request) {
        answer.(http.Flusher).Flush()
        fmt.Fprintf(answer, "%s %s", request.Method, request.URL.Path)
    })
    http.ListenAndServe(":" + os.Getenv("PORT"), nil)
}
"""


def zipped(folder: Path | None, files: dict[str, bytes | str]) -> dict[str, bytes]:
    """The package of a folder and of files, all of them executable."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o755 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
        for path in sorted(folder.rglob("*") if folder else []):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(folder or path))
    return {"ZipFile": buffer.getvalue()}


@pytest.fixture(scope="module")
def frameworks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the frameworks, from the package index or the cache of its client."""
    uv = shutil.which("uv", path=f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not installed, which fetches functions-framework and FastAPI")
    folder = tmp_path_factory.mktemp("frameworks")
    command = [uv, "pip", "install", "--quiet", "--target", str(folder), *REQUIREMENTS]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=scaled(120))
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"functions-framework and FastAPI cannot be installed: {error}")
    return folder


def test_functions_framework(platform: Platform, frameworks: Path) -> None:
    code = zipped(frameworks, {"start.py": FRAMEWORK, "main.py": FUNCTION})
    variables = {"Variables": {"FUNCTION_TARGET": "hello"}}
    url = create(platform, Code=code, Handler="start.py", Environment=variables)
    answer, text = ask(platform, f"{url}/a/b", "POST", b"x" * 100_000)
    assert (answer.status, json.loads(text)) == (200, {"path": "/a/b", "body": 100_000})
    answer, text = ask(platform, f"{url}/stream")
    assert (answer.headers["x-own"], text) == ("1", b"part 0,part 1,part 2,")
    assert {row["outcome"] for row in log(platform)} == {"ok"}


def test_fastapi_under_uvicorn(platform: Platform, frameworks: Path) -> None:
    code = zipped(frameworks, {"start.py": UVICORN, "app.py": APPLICATION})
    url = create(platform, Code=code, Handler="start.py")
    answer, text = ask(platform, f"{url}/items/7")
    assert (answer.status, json.loads(text)) == (200, {"number": 7})
    assert ask(platform, f"{url}/items/x")[0].status == 422
    with asked(platform, f"{url}/events") as events:
        for word in ("one", "two"):
            ask(platform, f"{url}/tell", "POST", json.dumps(word).encode())
            assert events.readline() + events.readline() == f"data: {word}\n\n".encode()
        ask(platform, f"{url}/tell", "POST", b'"end"')
        assert events.read() == b""
    connection = WebSocket(platform, f"{url}/chat")
    assert connection.head.startswith(b"HTTP/1.1 101 ")
    # A text frame with a mask of zeros (RFC 6455, 5.2), and a frame of the server, which has none.
    connection.socket.sendall(b"\x81\x85\0\0\0\0hello")
    assert connection.read(7) == b"\x81\x05HELLO"
    connection.socket.sendall(b"\x88\x82\0\0\0\0\x03\xe8")
    assert connection.read(4) == b"\x88\x02\x03\xe8"
    assert connection.socket.recv(1) == b""
    rows = log(platform)
    assert len({row["instance"] for row in rows}) == 1
    assert {row["outcome"] for row in rows} == {"ok"}


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
def test_a_static_server_in_go(platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text(GO)
    environment = os.environ | {"CGO_ENABLED": "0", "GO111MODULE": "off", "GOFLAGS": ""}
    command = ["go", "build", "-o", "bootstrap", "main.go"]
    built = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
    if built.returncode:
        pytest.skip(f"Go cannot build here: {built.stderr.decode()}")
    code = zipped(None, {"bootstrap": (tmp_path / "bootstrap").read_bytes()})
    url = create(platform, Code=code, Runtime="provided.al2023", Handler="bootstrap")
    for _ in range(2):
        answer, text = ask(platform, f"{url}/path")
        assert (answer.status, text) == (200, b"GET /path")
