"""Cold starts of `hello` in every language, beside each other.

One start of each language after the other, so that what else the machine does meets all alike.
*init* is the platform's own account of a start, until the runtime asks for the first event;
*first* is the time that the first event takes; *client* is from the request to the answer, as a
client sees it. Java is measured with the archive of its classes and without.

    .venv/bin/python benches/platform/languages.py [--starts 50] [--memory 1769] [--from prepared]

The engine is the installed one, or that of UNCIA_ENGINE. A language that is not installed is left
out, and the reason is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from ending import start_program, stop_on_sigterm

from uncia import engine, functions
from uncia.errors import UnciaError
from uncia.settings import LANGUAGES

HELLO = functions.load("hello")
ROLE = "arn:aws:iam::000000000000:role/bench"
WITHOUT_ARCHIVE = "java, no archive"
NS_PER_MS = 1e6


class Platform:
    """The engine on a state folder, and a client for it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        command = [str(engine.binary()), "serve", "--listen", "127.0.0.1:0", "--state", str(state)]
        self.process = start_program(command)
        assert self.process.stdout is not None
        address = json.loads(self.process.stdout.readline())["address"]
        self.client: Any = boto3.client(
            "lambda",
            endpoint_url=f"http://{address}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=Config(retries={"total_max_attempts": 1}, proxies={}),
        )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def create(self, title: str, language: str, memory: int, kind: str) -> str:
        """Create `hello` in a language; the name of the function."""
        # Another package has another archive, which can be taken away.
        filler = 1 if title == WITHOUT_ARCHIVE else 0
        made = functions.package(HELLO, language, filler=filler)
        name = title.replace(", ", "-").replace(" ", "-")
        before = set(self.archives())
        self.client.create_function(
            FunctionName=name,
            Runtime=LANGUAGES[language].identifier,
            Handler=made.handler,
            Role=ROLE,
            Code={"ZipFile": made.read_bytes()},
            MemorySize=memory,
            Timeout=60,
            Tags={"uncia:keep-alive-ms": "1", "uncia:start-from": kind},
        )
        if title == WITHOUT_ARCHIVE:
            for archive in set(self.archives()) - before:
                archive.unlink()
        return name

    def archives(self) -> list[Path]:
        return list((self.state / "bytecode").glob("*/java-*/classes.jsa"))

    def start(self, name: str) -> dict[str, float]:
        """One cold start: times in ms, memory in MB."""
        sent = time.perf_counter_ns()
        answer = self.client.invoke(FunctionName=name, Payload=b"{}")
        answer["Payload"].read()
        client = time.perf_counter_ns() - sent
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        if headers["x-uncia-start"] != "cold":
            raise SystemExit(f"{name} was not started cold but {headers['x-uncia-start']}")
        return {
            "init": int(headers["x-uncia-initialization-ns"]) / NS_PER_MS,
            "first": int(headers["x-uncia-execution-ns"]) / NS_PER_MS,
            "client": client / NS_PER_MS,
            "memory": int(headers["x-uncia-memory-peak"]) / 2**20,
        }


def columns(values: list[dict[str, float]]) -> str:
    """The table's cells for the starts of one language."""
    cells = []
    for key in ("init", "first", "client"):
        ordered = sorted(value[key] for value in values)
        p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        cells.append(f"{ordered[0]:.1f} | {statistics.median(ordered):.1f} | {p99:.1f}")
    memory = statistics.median(value["memory"] for value in values)
    return " | ".join([*cells, f"{memory:.1f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--starts", type=int, default=50, help="of each language")
    parser.add_argument("--memory", type=int, default=1769, help="in MB; 1769 have one vCPU")
    parser.add_argument("--from", dest="kind", default="prepared", help="their start_from")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as folder:
        platform = Platform(Path(folder) / "state")
        try:
            names: dict[str, str] = {}
            languages = {language: language for language in HELLO.runtime_names}
            for title, language in (languages | {WITHOUT_ARCHIVE: "java"}).items():
                try:
                    names[title] = platform.create(title, language, options.memory, options.kind)
                except (UnciaError, platform.client.exceptions.ClientError) as error:
                    print(f"{title}: not measured: {error}")
            times: dict[str, list[dict[str, float]]] = defaultdict(list)
            for _ in range(options.starts):
                for title, name in names.items():
                    times[title].append(platform.start(name))
                    time.sleep(0.05)
        finally:
            platform.stop()
    load = os.getloadavg()[0]
    print(
        f"{options.starts} cold starts each, {options.kind}, {options.memory} MB; load {load:.1f}"
    )
    times_of = " | ".join(f"{key} min | p50 | p99" for key in ("init", "first", "client"))
    print(f"\n| language | {times_of} | memory MB |\n{'|---' * 11}|")
    for title, values in sorted(times.items(), key=lambda it: min(v["init"] for v in it[1])):
        print(f"| {title} | {columns(values)} |")


if __name__ == "__main__":
    stop_on_sigterm()
    main()
