"""The load generators that are compared: how each is asked for a load, and what it says of it.

Peers get what makes them fast where they offer a choice: k6 and vegeta discard bodies, wrk runs one
thread, because the server needs the other core.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import Run, run
from servers import Missing

GRACE_S = 60.0
"""How long after its load a generator may take to start, to await answers and to report."""
VERSIONS = "versions.txt"


class Failed(Exception):
    """A generator did not do what it was asked; the message says what it said."""


@dataclass(frozen=True)
class Asked:
    """A load: GET requests to one address.

    Attributes:
        url: the address.
        seconds: how long.
        connections: clients of a closed loop; in an open loop, connections or workers at the start.
        rate: requests per second, or None for a closed loop.
        in_flight: in an open loop, how many requests may wait for their answers at once, for peers
            that must know (k6, oha); ``connections`` if that is more.
    """

    url: str
    seconds: int
    connections: int
    rate: int | None = None
    in_flight: int = 0

    @property
    def most_in_flight(self) -> int:
        return max(self.connections, self.in_flight)


@dataclass(frozen=True)
class Figures:
    """What a generator reports of a load; None where it does not say.

    Attributes:
        answered: requests with a 2xx answer.
        failed: other requests that it knows of.
        p99_ms: the latency's p99 as it reports it.
        notes: other figures.
    """

    answered: int
    failed: int
    p99_ms: float | None = None
    notes: dict[str, float] = field(default_factory=dict)


class Generator(ABC):
    """A load generator that is run as a process."""

    name: str
    open_loop = True
    """Whether it can be asked for a rate."""

    @abstractmethod
    def version(self) -> str:
        """One line. Raises ``Missing`` if the program is not here."""

    @abstractmethod
    def load(self, asked: Asked, folder: Path) -> tuple[Run, Figures]:
        """Carries out a load with ``folder`` for files; raises ``Missing`` or ``Failed``."""


def execute(
    command: Sequence[str | Path],
    folder: Path,
    seconds: float,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
) -> Run:
    """Runs a generator to its end; an exit code other than 0 raises ``Failed``."""
    ran = run(command, folder, seconds + GRACE_S, stdin, env)
    if ran.code != 0:
        message = (ran.stderr.strip() or ran.stdout.strip() or "nothing").splitlines()[-1]
        raise Failed(f"{Path(command[0]).name} ended with code {ran.code}, and said: {message}")
    return ran


def find(pattern: str, text: str, program: str) -> str:
    """The first group of a pattern that must be in a program's output."""
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise Failed(f"{program} printed no {pattern!r}")
    return match.group(1)


class Peer(Generator):
    """A generator of others: in the folder that peers.sh filled, or on the PATH."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def binary(self) -> Path:
        """Raises ``Missing`` if it is not here."""
        if self.folder is not None and (self.folder / "bin" / self.name).exists():
            return self.folder / "bin" / self.name
        result = shutil.which(self.name)
        if result is None:
            raise Missing(f"{self.name} is not installed (peers.sh installs it)")
        return Path(result)

    def version(self) -> str:
        self.binary()
        if self.folder is not None and (self.folder / VERSIONS).exists():
            for line in (self.folder / VERSIONS).read_text().splitlines():
                if line.startswith(f"{self.name} "):
                    return line
        return f"{self.name} of unknown version"


class Wrk(Peer):
    name = "wrk"
    open_loop = False

    def load(self, asked: Asked, folder: Path) -> tuple[Run, Figures]:
        if asked.rate is not None:
            raise Missing("wrk is closed loop and has no rate")
        command: list[str | Path] = [
            self.binary(),
            "-t1",
            f"-c{asked.connections}",
            f"-d{asked.seconds}s",
        ]
        command += [f"-d{asked.seconds}s", "--latency", asked.url]
        ran = execute(command, folder, asked.seconds)
        requests = int(find(r"(\d+) requests in", ran.stdout, self.name))
        wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", ran.stdout)
        socket = re.search(
            r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", ran.stdout
        )
        failed = 0 if wrong is None else int(wrong.group(1))
        # Timeouts are of requests that count as answered later, if ever; the others are lost.
        lost = 0 if socket is None else sum(int(count) for count in socket.groups()[:3])
        scale = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
        value = float(find(r"^\s+99%\s+([\d.]+)(?:us|ms|s|m)$", ran.stdout, self.name))
        unit = find(r"^\s+99%\s+[\d.]+(us|ms|s|m)$", ran.stdout, self.name)
        return ran, Figures(requests - failed, failed + lost, value * scale[unit])


class Hey(Peer):
    name = "hey"

    def load(self, asked: Asked, folder: Path) -> tuple[Run, Figures]:
        command: list[str | Path] = [
            self.binary(),
            "-c",
            str(asked.connections),
            "-z",
            f"{asked.seconds}s",
        ]
        if asked.rate is not None:
            # Its rate is per worker, and each worker waits for its answers. All workers tick at the
            # same time, so that more of them would make the pace coarser.
            command += ["-q", f"{asked.rate / asked.connections:.6f}"]
        ran = execute([*command, asked.url], folder, asked.seconds)
        total = float(find(r"Total:\s+([\d.]+) secs", ran.stdout, self.name))
        rate = float(find(r"Requests/sec:\s+([\d.]+)", ran.stdout, self.name))
        # The counts by status stop at a million; the rate does not.
        requests = round(total * rate)
        codes = re.findall(r"^\s+\[(\d{3})\]\s+(\d+) responses", ran.stdout, re.M)
        wrong = sum(int(count) for code, count in codes if not code.startswith("2"))
        errors = ran.stdout.partition("Error distribution:")[2]
        failed = wrong + sum(int(count) for count in re.findall(r"^\s+\[(\d+)\]", errors, re.M))
        p99 = 1e3 * float(find(r"99% in ([\d.]+) secs", ran.stdout, self.name))
        return ran, Figures(requests - failed, failed, p99)


K6_SCRIPT = """
import http from 'k6/http';
export const options = {
  scenarios: { load: JSON.parse(__ENV.SCENARIO) },
  discardResponseBodies: true,
  summaryTrendStats: ['p(50)', 'p(99)', 'max'],
};
export default function () { http.get(__ENV.URL); }
export function handleSummary(data) { return { [__ENV.SUMMARY]: JSON.stringify(data) }; }
"""


class K6(Peer):
    name = "k6"

    def load(self, asked: Asked, folder: Path) -> tuple[Run, Figures]:
        script, summary = folder / "script.js", folder / "summary.json"
        script.write_text(K6_SCRIPT)
        duration = f"{asked.seconds}s"
        scenario: dict[str, Any] = {
            "executor": "constant-vus",
            "vus": asked.connections,
            "duration": duration,
        }
        if asked.rate is not None:
            scenario = {
                "executor": "constant-arrival-rate",
                "rate": asked.rate,
                "timeUnit": "1s",
                "duration": duration,
                "preAllocatedVUs": asked.most_in_flight,
            }
        env = {"SCENARIO": json.dumps(scenario), "URL": asked.url, "SUMMARY": str(summary)}
        command: list[str | Path] = [self.binary(), "run", "--quiet", "--no-usage-report", script]
        ran = execute(command, folder, asked.seconds, env=env)
        metrics = json.loads(summary.read_text())["metrics"]
        requests = metrics["http_reqs"]["values"]["count"]
        # Of a rate the "passes" are the true ones: here, the requests that failed.
        failed = metrics["http_req_failed"]["values"]["passes"]
        dropped = metrics.get("dropped_iterations", {}).get("values", {}).get("count", 0)
        p99 = metrics["http_req_duration"]["values"]["p(99)"]
        return ran, Figures(requests - failed, failed, p99, {"dropped": dropped})


class Oha(Peer):
    name = "oha"

    def load(self, asked: Asked, folder: Path) -> tuple[Run, Figures]:
        workers = asked.connections if asked.rate is None else asked.most_in_flight
        command: list[str | Path] = [
            self.binary(),
            "--no-tui",
            "--output-format",
            "json",
            "-c",
            str(workers),
        ]
        command += ["-z", f"{asked.seconds}s"]
        if asked.rate is not None:
            command += ["-q", str(asked.rate), "--latency-correction"]
        ran = execute([*command, asked.url], folder, asked.seconds)
        report = json.loads(ran.stdout)
        codes = report["statusCodeDistribution"]
        answered = sum(count for code, count in codes.items() if code.startswith("2"))
        # At its deadline it cuts off the requests that are on their way; they did not fail.
        errors = {
            error: count
            for error, count in report["errorDistribution"].items()
            if error != "aborted due to deadline"
        }
        failed = sum(codes.values()) - answered + sum(errors.values())
        return ran, Figures(answered, failed, 1e3 * report["latencyPercentiles"]["p99"])


class Vegeta(Peer):
    name = "vegeta"

    def load(self, asked: Asked, folder: Path) -> tuple[Run, Figures]:
        results = folder / "results.bin"
        command: list[str | Path] = [
            self.binary(),
            "attack",
            f"-duration={asked.seconds}s",
            f"-output={results}",
        ]
        command += ["-max-body=0", f"-workers={asked.connections}"]
        if asked.rate is None:
            command += ["-rate=0", f"-max-workers={asked.connections}"]
        else:
            command += [f"-rate={asked.rate}/1s"]
        ran = execute(command, folder, asked.seconds, stdin=f"GET {asked.url}\n")
        encode: list[str | Path] = [self.binary(), "report", "-type=json", results]
        report = json.loads(subprocess.run(encode, capture_output=True, check=True).stdout)
        codes = report["status_codes"]
        answered = sum(count for code, count in codes.items() if code.startswith("2"))
        failed = report["requests"] - answered
        return ran, Figures(answered, failed, report["latencies"]["99th"] / 1e6)


PEERS = (Wrk, Hey, K6, Oha, Vegeta)
