"""What the embedded platform adds to a function that is an HTTP server.

The same server of asyncio, by itself on a port and as a function behind its URL, in turn, with
the same client:

* one request at a time: latency behind the URL, by itself, and the difference of the medians;
* 80 requests that wait 1 s, all at once, on one instance: until the last has ended;
* an answer of 100 MB: bytes a second, and the time to the first byte of the body.

    .venv/bin/python benches/platform/http_servers.py [--repeat 3] [--requests 500] [--engine FILE]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import http.client
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
from peers import free_port

ROOT = Path(__file__).resolve().parents[2]
SIZE = 100_000_000
AT_A_TIME = 80
SERVER = """
import asyncio, os

BLOCK = bytes(1 << 20)

async def serve(reader, writer):
    try:
        while line := await reader.readline():
            while await reader.readline() not in (b"\\r\\n", b""):
                pass
            path, _, query = line.split()[1].decode().partition("?")
            if path == "/wait":
                await asyncio.sleep(float(query))
            size = int(query) if path == "/large" else 2
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % size)
            while size:
                writer.write(BLOCK[:min(size, len(BLOCK))])
                size -= min(size, len(BLOCK))
                await writer.drain()
    except ConnectionError:
        pass
    writer.close()

async def main():
    server = await asyncio.start_server(serve, "0.0.0.0", int(os.environ["PORT"]), backlog=128)
    await server.serve_forever()

asyncio.run(main())
"""


def get(connection: http.client.HTTPConnection, path: str) -> tuple[float, float, int]:
    """Seconds to the head and to the end of an answer, and its size."""
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    first, size = time.perf_counter() - began, 0
    view = memoryview(bytearray(1 << 20))
    while count := answer.readinto(view):
        size += count
    return first, time.perf_counter() - began, size


def measure(address: str, prefix: str, requests: int) -> dict[str, float]:
    """The figures of one server."""
    connection = http.client.HTTPConnection(address, timeout=60)
    for _ in range(20):
        get(connection, f"{prefix}/")
    single = sorted(get(connection, f"{prefix}/")[1] for _ in range(requests))
    first, whole, size = get(connection, f"{prefix}/large?{SIZE}")
    connection.close()
    if size != SIZE:
        raise SystemExit(f"{address} answered {size} of {SIZE} bytes")

    def wait(_: int) -> None:
        get(http.client.HTTPConnection(address, timeout=60), f"{prefix}/wait?1")

    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
        began = time.perf_counter()
        list(pool.map(wait, range(AT_A_TIME)))
        together = time.perf_counter() - began
    return {
        "p50_us": single[len(single) // 2] * 1e6,
        "p99_us": single[len(single) * 99 // 100] * 1e6,
        "together_s": together,
        "first_byte_ms": first * 1e3,
        "gb_per_s": SIZE / whole / 1e9,
    }


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[tuple[str, str]]:
    """The server by itself."""
    (folder / "server.py").write_text(SERVER)
    port = free_port()
    command = [sys.executable, str(folder / "server.py")]
    process = subprocess.Popen(command, env=os.environ | {"PORT": str(port)})
    try:
        yield f"127.0.0.1:{port}", ""
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def platform(engine: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """The server as a function of the embedded platform."""
    command = [str(engine), "serve", "--listen", "127.0.0.1:0", "--state", str(folder / "state")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = json.loads(process.stdout.readline())["address"]
        package = io.BytesIO()
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr("server.py", SERVER)
        client = boto3.client(
            "lambda",
            endpoint_url=f"http://{address}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
        )
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        client.create_function(
            FunctionName="server",
            Runtime=version,
            Handler="server.py",
            Role="arn:aws:iam::000000000000:role/any",
            Code={"ZipFile": package.getvalue()},
            MemorySize=1769,
            Timeout=60,
            Tags={"uncia:architecture": "http"},
        )
        url = client.create_function_url_config(FunctionName="server", AuthType="NONE")
        yield address, url["FunctionUrl"].removeprefix(f"http://{address}").rstrip("/")
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(address: str, prefix: str) -> None:
    """Return when the server answers."""
    deadline = time.monotonic() + 30
    while True:
        try:
            get(http.client.HTTPConnection(address, timeout=60), f"{prefix}/")
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--engine", type=Path, default=ROOT / "target/release/uncia-engine")
    options = parser.parse_args()
    figures: dict[str, list[dict[str, float]]] = {"alone": [], "uncia": []}
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            servers: dict[str, Callable[[], contextlib.AbstractContextManager[tuple[str, str]]]] = {
                "alone": lambda folder=folder: alone(folder),
                "uncia": lambda folder=folder: platform(options.engine, folder),
            }
            for server, started in servers.items():
                with started() as (address, prefix):
                    wait_until_ready(address, prefix)
                    figures[server].append(measure(address, prefix, options.requests))
    for key in figures["uncia"][0]:
        medians = {
            name: statistics.median(it[key] for it in runs) for name, runs in figures.items()
        }
        print(f"{key:14}", *(f"{name} {value:10.3f}" for name, value in medians.items()), sep="  ")


if __name__ == "__main__":
    main()
