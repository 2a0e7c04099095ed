"""What code in the WebAssembly host takes: by itself, and behind the embedded platform.

The host by itself, with the component of `crates/wasm/hello` and a client that does nothing but
send and receive:

* one request at a time: latency of the function, and of a request that the host answers without any
  code (the bare round trip over loopback), in turn; and what the code adds, by their medians;
* throughput: closed loops of the load generator, which takes its part of the same processors;
* cold: loading the component, and the first request.

Then the platform: a warm request behind the function's URL, and the initialization of cold starts.

    make wasm
    .venv/bin/python benches/platform/wasm.py [--repeat 3] [--requests 3000] [--seconds 5]

The engine is the installed one, or that of UNCIA_ENGINE; the host that of UNCIA_WASM, or what
make wasm has installed. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from ending import stop_on_sigterm
from peers import free_port

import uncia
from uncia import engine

ROOT = Path(__file__).resolve().parents[2]
COMPONENT = ROOT / "crates" / "wasm" / "hello" / "function.wasm"
WASM = Path(os.environ.get("UNCIA_WASM", Path(sys.executable).parent / "uncia-wasm"))
US, MS = 1e6, 1e3


class Client:
    """A connection on which requests are sent one after the other."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """The answer, which has a Content-Length."""
        self.socket.sendall(request)
        answer = self.socket.recv(65536)
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(65536)
        head, _, body = answer.partition(b"\r\n\r\n")
        _, _, after = head.lower().partition(b"\r\ncontent-length: ")
        size = int(after.split(b"\r\n")[0])
        while len(body) < size:
            body += self.socket.recv(65536)
        if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
            raise SystemExit(f"{self.address} answered {answer.decode(errors='replace')}")
        return body

    def seconds(self, request: bytes) -> float:
        """How long it takes."""
        began = time.perf_counter()
        self.ask(request)
        return time.perf_counter() - began


def http(path: str = "/", body: bytes = b"", method: str = "GET", **headers: str) -> bytes:
    """A request."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", ""]).encode() + body


HELLO = http(uncia_function="hello")
PING = http(uncia_order="ping")
UNLOAD = http(uncia_order="unload", uncia_function="hello")
LOAD = http(
    body=json.dumps(
        {
            "function": "hello",
            "file": "hello.cwasm",
            "memory_bytes": 128 << 20,
            "cpu_ms": None,
            "environment": {},
        }
    ).encode(),
    method="POST",
    uncia_order="load",
)


@contextlib.contextmanager
def host(folder: Path) -> Iterator[str]:
    """The host by itself, with the component; its address."""
    subprocess.run([WASM, "compile", COMPONENT, folder / "hello.cwasm"], check=True)
    port = free_port()
    command = [str(WASM), "serve", str(folder), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def platform(folder: Path) -> Iterator[str]:
    """The embedded platform; its address."""
    config = folder / "config.json"
    config.write_text(json.dumps({"runtimes": {"wasm": str(WASM)}}))
    command = [str(engine.binary()), "serve", "--listen", "127.0.0.1:0", "--config", str(config)]
    command += ["--state", str(folder / "state")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.terminate()
        process.wait()


def quantiles(values: list[float]) -> tuple[float, float]:
    """Median and 99th percentile."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]


def by_itself(folder: Path, requests: int, seconds: float) -> dict[str, float]:
    """The figures of the host."""
    with host(folder) as address:
        client = Client(address)
        client.ask(LOAD)
        for _ in range(200):
            client.ask(HELLO)
            client.ask(PING)
        pairs = [(client.seconds(PING), client.seconds(HELLO)) for _ in range(requests)]
        bare, code = (quantiles([pair[side] for pair in pairs]) for side in (0, 1))
        cold = []
        for _ in range(200):
            client.ask(UNLOAD)
            cold.append(client.seconds(LOAD) + client.seconds(HELLO))
        rows = uncia.load(
            f"http://{address}/",
            closed=16,
            duration=f"{seconds}s",
            headers={"uncia-function": "hello"},
        )
        received = rows["received"].drop_null().to_pylist()
        span = (max(received) - min(received)) / 1e9
        cold_p50, cold_p99 = quantiles(cold)
        return {
            "bare round trip p50, us": bare[0] * US,
            "bare round trip p99, us": bare[1] * US,
            "code p50, us": code[0] * US,
            "code p99, us": code[1] * US,
            "code adds, us": (code[0] - bare[0]) * US,
            "requests/s": len(received) / span,
            "cold p50, ms": cold_p50 * MS,
            "cold p99, ms": cold_p99 * MS,
        }


def behind_the_platform(folder: Path, requests: int) -> dict[str, float]:
    """The figures of the platform."""
    import base64
    import io
    import zipfile

    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.write(COMPONENT, "function.wasm")
    form = {
        "Runtime": "wasm",
        "Handler": "function.wasm",
        "Role": "arn:aws:iam::000000000000:role/bench",
        "Code": {"ZipFile": base64.b64encode(package.getvalue()).decode()},
    }
    with platform(folder) as address:
        root = f"http://{address}/2015-03-31/functions"

        def post(url: str, body: object) -> dict[str, str]:
            request = urllib.request.Request(url, json.dumps(body).encode())
            with urllib.request.urlopen(request) as answer:
                answered: dict[str, str] = json.loads(answer.read())
                return answered

        post(root, form | {"FunctionName": "warm"})
        post(root, form | {"FunctionName": "cold", "Tags": {"uncia:keep-alive-ms": "0"}})
        url = f"http://{address}/2021-10-31/functions/warm/url"
        path = "/url/" + post(url, {"AuthType": "NONE"})["FunctionUrl"].split("/url/")[1]
        client = Client(address)
        hello = http(path)
        for _ in range(200):
            client.ask(hello)
        warm = quantiles([client.seconds(hello) for _ in range(requests)])
        cold = []
        for _ in range(100):
            request = urllib.request.Request(f"{root}/cold/invocations", b"{}")
            with urllib.request.urlopen(request) as answer:
                if answer.headers["x-uncia-start"] == "cold":
                    cold.append(int(answer.headers["x-uncia-initialization-ns"]) / 1e9)
            time.sleep(0.02)
        # The first starts the host.
        start = quantiles(cold[1:])
        return {
            "behind the URL p50, us": warm[0] * US,
            "behind the URL p99, us": warm[1] * US,
            "initialization p50, ms": start[0] * MS,
            "initialization p99, ms": start[1] * MS,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="The WebAssembly host.")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--requests", type=int, default=3_000)
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    if not WASM.is_file():
        raise SystemExit(f"there is no {WASM}: run make wasm")
    measured: list[dict[str, float]] = []
    parts: list[Callable[[Path], dict[str, float]]] = [
        lambda folder: by_itself(folder, arguments.requests, arguments.seconds),
        lambda folder: behind_the_platform(folder, arguments.requests),
    ]
    for _ in range(arguments.repeat):
        figures: dict[str, float] = {}
        for part in parts:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder).chmod(0o755)
                figures |= part(Path(folder))
        measured.append(figures)
    for name in measured[0]:
        values = [figures[name] for figures in measured]
        spread = f"({min(values):,.2f} to {max(values):,.2f})"
        print(f"{name:26} {statistics.median(values):12,.2f} {spread}")


if __name__ == "__main__":
    stop_on_sigterm()
    main()
