"""The first executions of fresh Java instances, with what instances share and without.

`image-resize` first serves until there is something to share, and its instance goes. Then a fresh
instance of each kind in turn serves some requests, one after the other, so that what else the
machine does meets all alike. *Start* is the platform's own account of one, until the instance asks
for its first event; *to the first byte* is from the first request to its answer, as a client sees
it, on a connection that is open. `hello` in Java, restored, has next to nothing to execute.

    .venv/bin/python benches/platform/shared.py [--instances 20] [--requests 10]
    .venv/bin/python benches/platform/shared.py --java /usr/lib/jvm/temurin-25-jdk-amd64/bin/java

`profile` takes a Java of 25 or newer; `checkpoint` and `warm` take CRIU (`make criu`, and its
folder in UNCIA_CRIU). A kind that cannot be had is left out, and the reason is printed. The engine
is the installed one, or that of UNCIA_ENGINE.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config
from ending import start_program, stop_on_sigterm

from uncia import engine, functions
from uncia.settings import LANGUAGES

ROLE: Final = "arn:aws:iam::000000000000:role/bench"
KEEP_ALIVE_MS: Final = 300
SHARE_AFTER: Final = 100
PATIENCE_S: Final = 60
NS_PER_MS: Final = 1e6

KINDS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "nothing": ("image-resize", {}),
    "classes": ("image-resize", {"uncia:share-state": "classes"}),
    "profile": ("image-resize", {"uncia:share-state": "profile"}),
    "checkpoint": ("image-resize", {"uncia:start-from": "checkpoint"}),
    "warm": ("image-resize", {"uncia:share-state": "warm"}),
    "hello": ("hello", {}),
    "hello, checkpoint": ("hello", {"uncia:start-from": "checkpoint"}),
}
"""Functions and their tags; the first one is what the others are compared with."""

RESTORED: Final = ("checkpoint", "warm", "hello, checkpoint")


class Unavailable(Exception):
    """A kind that this machine does not have."""


@dataclass
class Times:
    """Of the fresh instances of a kind, in ms."""

    starts: list[float] = field(default_factory=list)
    first_bytes: list[float] = field(default_factory=list)
    executions: list[list[float]] = field(default_factory=list)
    cpu: list[list[float]] = field(default_factory=list)


class Platform:
    """The engine on a state folder, and clients for it."""

    def __init__(self, folder: Path, java: Path | None) -> None:
        runtimes = {} if java is None else {"java": str(java)}
        config = folder / "engine.json"
        config.write_text(json.dumps({"runtimes": runtimes, "init_timeout_ms": PATIENCE_S * 1000}))
        command = [str(engine.binary()), "serve", "--listen", "127.0.0.1:0"]
        command += ["--state", str(folder / "state"), "--config", str(config)]
        self.process = start_program(command)
        assert self.process.stdout is not None
        address = json.loads(self.process.stdout.readline())["address"]
        self.connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
        self.client: Any = boto3.client(
            "lambda",
            endpoint_url=f"http://{address}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=Config(retries={"total_max_attempts": 1}, proxies={}),
        )

    def stop(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()

    def create(self, kind: str, memory: int) -> str:
        """Create the function of a kind; its name."""
        source, tags = KINDS[kind]
        made = functions.package(source, "java")
        name = kind.replace(", ", "-")
        try:
            self.client.create_function(
                FunctionName=name,
                Runtime=LANGUAGES["java"].identifier,
                Handler=made.handler,
                Role=ROLE,
                Code={"ZipFile": made.read_bytes()},
                MemorySize=memory,
                Timeout=PATIENCE_S,
                Tags={
                    "uncia:keep-alive-ms": str(KEEP_ALIVE_MS),
                    "uncia:cpu-micro": "1000000",
                    "uncia:share-after": str(SHARE_AFTER),
                    **tags,
                },
            )
        except self.client.exceptions.ClientError as error:
            raise Unavailable(str(error)) from error
        return name

    def invoke(self, name: str) -> tuple[dict[str, str], float]:
        """Serve a request; the answer's headers and the time until its first byte, in ms."""
        path = f"/2015-03-31/functions/{name}/invocations"
        sent = time.perf_counter_ns()
        self.connection.request("POST", path, body=b"{}")
        answer = self.connection.getresponse()
        taken = (time.perf_counter_ns() - sent) / NS_PER_MS
        body = answer.read()
        headers = {key.lower(): value for key, value in answer.getheaders()}
        if answer.status != 200 or "x-amz-function-error" in headers:
            raise SystemExit(f"{name}: {answer.status}: {body.decode()}")
        return headers, taken

    def prepare(self, kind: str, name: str) -> None:
        """Serve until later instances have what they share, as one of them shows."""
        for _ in range(SHARE_AFTER + 10):
            self.invoke(name)
        deadline = time.monotonic() + PATIENCE_S
        while kind in RESTORED:
            time.sleep(2 * KEEP_ALIVE_MS / 1000)
            if self.invoke(name)[0]["x-uncia-start"] == "restored":
                break
            if time.monotonic() > deadline:
                raise Unavailable("no instance of it is restored; the platform's log says why")

    def serve(self, name: str, requests: int, times: Times) -> None:
        """Serve requests by a fresh instance."""
        headers, taken = self.invoke(name)
        instance = headers["x-uncia-instance"]
        if headers["x-uncia-start"] not in ("cold", "restored"):
            raise SystemExit(f"{name}: the start was {headers['x-uncia-start']}")
        times.starts.append(int(headers["x-uncia-initialization-ns"]) / NS_PER_MS)
        times.first_bytes.append(taken)
        executions, cpu = [], []
        note(headers, executions, cpu)
        for _ in range(requests - 1):
            headers, _ = self.invoke(name)
            if headers["x-uncia-instance"] != instance:
                raise SystemExit(f"{name}: another instance has served a request")
            note(headers, executions, cpu)
        times.executions.append(executions)
        times.cpu.append(cpu)


def note(headers: Mapping[str, str], executions: list[float], cpu: list[float]) -> None:
    """Take note of how long a request executed, and of the CPU time that it used, in ms."""
    executions.append(int(headers["x-uncia-execution-ns"]) / NS_PER_MS)
    used = int(headers["x-uncia-cpu-user-ns"]) + int(headers["x-uncia-cpu-system-ns"])
    cpu.append(used / NS_PER_MS)


def row(kind: str, times: Times, base: Times) -> str:
    """The table's cells for a kind."""

    def total(rows: list[list[float]]) -> float:
        return statistics.median(sum(it) for it in rows)

    def middle(rows: list[list[float]]) -> float:
        return statistics.median(it for row in rows for it in row)

    def shared(of: Callable[[list[list[float]]], float], rows: str) -> str:
        value = of(getattr(times, rows))
        return f"{value:.1f} ({value / of(getattr(base, rows)):.2f})"

    return " | ".join(
        [
            f"| {kind}",
            f"{statistics.median(times.starts):.1f}",
            f"{statistics.median(times.first_bytes):.1f} ({max(times.first_bytes):.1f})",
            shared(lambda rows: statistics.median(it[0] for it in rows), "executions"),
            shared(middle, "executions"),
            shared(total, "executions"),
            f"{shared(total, 'cpu')} |",
        ]
    )


def measure(platform: Platform, options: argparse.Namespace) -> dict[str, Times]:
    names: dict[str, str] = {}
    for kind in options.kind or KINDS:
        try:
            name = platform.create(kind, options.memory)
            platform.prepare(kind, name)
        except Unavailable as reason:
            print(f"{kind}: not measured: {reason}")
        else:
            names[kind] = name
    times = {kind: Times() for kind in names}
    for _ in range(options.instances):
        for kind, name in names.items():
            # Its last instance has gone.
            time.sleep(2 * KEEP_ALIVE_MS / 1000)
            platform.serve(name, options.requests, times[kind])
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--instances", type=int, default=20, help="fresh ones of each kind")
    parser.add_argument("--requests", type=int, default=10, help="that each of them serves")
    parser.add_argument("--memory", type=int, default=512, help="in MB; each has one vCPU")
    parser.add_argument("--kind", action="append", choices=KINDS, help="these alone")
    parser.add_argument("--java", type=Path, help="instead of the one on the PATH")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as folder:
        platform = Platform(Path(folder), options.java)
        try:
            times = measure(platform, options)
        finally:
            platform.stop()
    print(
        f"{options.instances} instances of each kind, {options.memory} MB; load"
        f" {os.getloadavg()[0]:.1f}; milliseconds, medians; in brackets the most, or the share of"
        " what it takes with nothing shared"
    )
    number = options.requests
    print(
        f"\n| shared | start | to the first byte | first execution | first {number} |"
        f" sum of the first {number} | its CPU time |\n{'|---' * 7}|"
    )
    for kind, of_kind in times.items():
        base = times.get("hello" if kind.startswith("hello") else "nothing", of_kind)
        print(row(kind, of_kind, base))


if __name__ == "__main__":
    stop_on_sigterm()
    main()
