"""What the embedded platform adds to a function that is an HTTP server.

The same server of asyncio, by itself on a port and as a function behind its URL, in turn, with
the same client:

* one request at a time: latency behind the URL, by itself, and the difference of the medians;
* 80 requests that wait 1 s, all at once, on one instance: until the last has ended;
* an answer of 100 MB: bytes a second, and the time to the first byte of the body.

With ``--peers FOLDER``, Google's functions-framework with the same client, one request at a time:
by itself, with Knative's queue-proxy before it, and as a function behind its URL. All three run
throughout, and have rounds in turn, since a machine's speed changes from one minute to the next:
printed are the medians of the rounds, and those of their ratios to queue-proxy's in the same round.
Both are installed into the folder (queue-proxy is built from source, which takes Go), and found
there again.

    .venv/bin/python benches/platform/http_servers.py [--repeat 3] [--requests 500] [--engine FILE]
        [--peers FOLDER [--rounds 20]]
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
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import boto3
from ending import stop_on_sigterm
from peers import check_hello, free_port, functions_framework, queue_proxy

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


# functions-framework as a file of the package.
FRAMEWORK = """
import runpy

runpy.run_module("functions_framework", run_name="__main__", alter_sys=True)
"""


def framework_package(installed: Path, work: Path) -> bytes:
    """A package of functions-framework with ``hello``, from where it is installed."""
    functions_framework.write(work)
    package = io.BytesIO()
    site = (installed / "packages").resolve()
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in site.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(site))
        archive.write(work / "main.py", "main.py")
        archive.writestr("server.py", FRAMEWORK)
    return package.getvalue()


def package_of(source: str) -> bytes:
    """A package of one file."""
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("server.py", source)
    return package.getvalue()


def latency(address: str, path: str, requests: int) -> dict[str, float]:
    """The latency of ``hello``, one request at a time."""
    check_hello(address, path)
    connection = http.client.HTTPConnection(address, timeout=60)
    times = []
    for _ in range(requests + 20):
        began = time.perf_counter()
        connection.request("POST", path, b"{}", {"Content-Type": "application/json"})
        connection.getresponse().read()
        times.append(time.perf_counter() - began)
    connection.close()
    times = sorted(times[20:])
    return {"p50_us": times[len(times) // 2] * 1e6, "p99_us": times[len(times) * 99 // 100] * 1e6}


@contextlib.contextmanager
def peer_servers(
    peers: Path, engine: Path, work: Path
) -> Iterator[dict[str, contextlib.AbstractContextManager[tuple[str, str]]]]:
    """functions-framework by itself, behind queue-proxy, and as a function; none runs yet."""
    folders = {name: work / name for name in ("alone", "queue-proxy", "uncia")}
    for folder in folders.values():
        folder.mkdir()
    framework = peers / queue_proxy.NAME / "server"
    package = framework_package(framework, folders["uncia"])
    variables = {"FUNCTION_TARGET": "hello", "FUNCTION_SOURCE": "/var/task/main.py"}
    yield {
        "alone": functions_framework.serve(framework, folders["alone"]),
        "queue-proxy": queue_proxy.serve(peers / queue_proxy.NAME, folders["queue-proxy"]),
        "uncia": platform(engine, folders["uncia"], package, variables),
    }


@contextlib.contextmanager
def platform(
    engine: Path,
    folder: Path,
    package: bytes,
    variables: Mapping[str, str] | None = None,
) -> Iterator[tuple[str, str]]:
    """A server in a package as a function of the embedded platform."""
    command = [str(engine), "serve", "--listen", "127.0.0.1:0", "--state", str(folder / "state")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        address = json.loads(process.stdout.readline())["address"]
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
            Code={"ZipFile": package},
            MemorySize=1769,
            Timeout=60,
            Environment={"Variables": dict(variables or {})},
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
    parser.add_argument("--peers", type=Path, help="where functions-framework and queue-proxy are")
    parser.add_argument("--rounds", type=int, default=20, help="of each peer in each repetition")
    options = parser.parse_args()
    if options.peers is not None:
        folder = options.peers / queue_proxy.NAME
        folder.mkdir(parents=True, exist_ok=True)
        queue_proxy.install(folder.resolve())
    figures: dict[str, list[dict[str, float]]] = {"alone": [], "uncia": []}
    for _ in range(options.repeat):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            servers: dict[str, Callable[[], contextlib.AbstractContextManager[tuple[str, str]]]] = {
                "alone": lambda folder=folder: alone(folder),
                "uncia": lambda folder=folder: platform(options.engine, folder, package_of(SERVER)),
            }
            for server, started in servers.items():
                with started() as (address, prefix):
                    wait_until_ready(address, prefix)
                    figures[server].append(measure(address, prefix, options.requests))
    show(figures)
    if options.peers is not None:
        print("functions-framework:")
        peers = measure_peers(options.peers.resolve(), options)
        show(peers)
        print("of queue-proxy's:")
        show(ratios(peers, "queue-proxy"))


def measure_peers(peers: Path, options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """functions-framework in its three places, in turn."""
    figures: dict[str, list[dict[str, float]]] = {}
    for _ in range(options.repeat):
        with contextlib.ExitStack() as stack:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            servers = stack.enter_context(peer_servers(peers, options.engine, work))
            urls = {}
            for server, started in servers.items():
                address, path = stack.enter_context(started)
                urls[server] = address, path or "/"
                wait_until_ready(address, path.rstrip("/"))
            for _ in range(options.rounds):
                for server, url in urls.items():
                    measured = latency(*url, options.requests)
                    figures.setdefault(server, []).append(measured)
    return figures


def ratios(
    figures: Mapping[str, list[dict[str, float]]], to: str
) -> dict[str, list[dict[str, float]]]:
    """The figures of each round as ratios to those of one server in the same round."""
    return {
        name: [
            {key: measured[key] / base[key] for key in measured}
            for measured, base in zip(runs, figures[to], strict=True)
        ]
        for name, runs in figures.items()
    }


def show(figures: Mapping[str, list[dict[str, float]]]) -> None:
    """Print the medians of the repetitions."""
    for key in figures["uncia"][0]:
        medians = {
            name: statistics.median(it[key] for it in runs) for name, runs in figures.items()
        }
        print(f"{key:14}", *(f"{name} {value:10.3f}" for name, value in medians.items()), sep="  ")


if __name__ == "__main__":
    stop_on_sigterm()
    main()
