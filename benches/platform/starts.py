"""What a cold start of the embedded platform takes, by phase, and what one of its peers takes.

A client with an open connection sends a request that finds no instance: one at a time, and 100 at
once. The handler answers when it began and ended, by the machine's monotonic clock. *To the
handler* is the time from the request to the handler's first line, *to the first byte* that until
the client has the first byte of the answer. In a burst each handler waits, so that no instance
serves two; its own time is taken off then. Phases are the platform's spans.

Peers (``peers/``) serve a ``hello`` in Python or, workerd, in JavaScript. A start is that of their
process: from its beginning until a client that connects as soon as it can has the first byte of an
answer, and from that request. AWS's emulator starts its runtime with the first request.

    .venv/bin/python benches/platform/starts.py [--from KIND ...] [--starts 100] [--burst 100]
        [--rounds 3] [--peer NAME ... | --no-peers] [--peer-starts 20] [--json FILE]

KIND is a function's `start_from`, in Python or, after ``node:``, in Node.js. Starts one at a time
are of each kind and peer in turn. The engine is the installed one, or that of UNCIA_ENGINE.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import selectors
import socket
import statistics
import sys
import tempfile
import time
import urllib.request
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import peers
import pyarrow.ipc
from ending import start_program, stop_on_sigterm
from peers import choice

from uncia import engine
from uncia.settings import RUNTIMES
from uncia.stats.quantiles import QUANTILES, quantile

# Of the size of a small function: what compiles it again at each start shows.
HANDLER = """
import time

def handler(event, context):
    began = time.monotonic_ns()
    time.sleep(event["wait_s"])
    return [began, time.monotonic_ns()]
""" + "\n".join(
    f'''
def helper_{number}(values, limit={number}):
    """Stands for code that the handler may need."""
    above = {{name: value for name, value in values.items() if value > limit}}
    return repr(sorted(above.items(), key=lambda item: (item[1], item[0])))
'''
    for number in range(20)
)
NODE_HANDLER = """
exports.handler = async (event) => {
  const began = process.hrtime.bigint();
  if (event.wait_s) await new Promise((resolve) => setTimeout(resolve, event.wait_s * 1000));
  return [Number(began), Number(process.hrtime.bigint())];
};
""" + "\n".join(
    f"""
// Stands for code that the handler may need.
exports.helper{number} = (values, limit = {number}) =>
  JSON.stringify(Object.entries(values).filter(([, value]) => value > limit).sort());
"""
    for number in range(20)
)
PHASES = (
    "cgroup",
    "spawn",
    "assign",
    "network",
    "mounts",
    "create",
    "exec",
    "fork",
    "runtime",
    "handler",
)
NODE = "node:"
KINDS = (*RUNTIMES["python"].start_from, *(f"{NODE}{it}" for it in RUNTIMES["node"].start_from))
ROLE = "arn:aws:iam::000000000000:role/bench"
# For a burst, and for instances of the one before that have not ended yet.
MAX_INSTANCES = 400
# Longer than a burst takes to start.
WAIT_S = {False: 3, True: 8}
NS_PER_MS = 1e6

Phases = dict[str, list[float]]


@dataclass(frozen=True)
class Start:
    """What a client has seen of one."""

    handler_ms: float
    first_byte_ms: float
    kind: str
    instance: str


class Platform:
    def __init__(self, state: Path) -> None:
        config = state.with_suffix(".json")
        config.write_text(json.dumps({"max_instances": MAX_INSTANCES}))
        command = [str(engine.binary()), "serve", "--listen", "127.0.0.1:0", "--state", str(state)]
        command += ["--config", str(config)]
        self.process = start_program(command)
        assert self.process.stdout is not None
        self.address: str = json.loads(self.process.stdout.readline())["address"]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def create(
        self,
        name: str,
        tags: dict[str, str],
        imports: list[str],
        *,
        node: bool,
        folder: Path | None,
    ) -> None:
        package = io.BytesIO()
        handler = "".join(f"import {module}\n" for module in imports) + HANDLER
        with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(*(("handler.js", NODE_HANDLER) if node else ("handler.py", handler)))
            for path in folder.rglob("*") if folder is not None else ():
                archive.write(path, path.relative_to(folder or path))
        body = {
            "FunctionName": name,
            "Runtime": "nodejs20.x" if node else "python3.12",
            "Handler": "handler.handler",
            "Role": ROLE,
            "MemorySize": 1769,
            "Timeout": 60,
            "Tags": tags,
            "Code": {"ZipFile": base64.b64encode(package.getvalue()).decode()},
        }
        url = f"http://{self.address}/2015-03-31/functions"
        urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode())).close()

    def invoke_at_once(self, name: str, count: int, wait_s: float) -> list[Start]:
        """Sends ``count`` requests at once, each over a connection that is open already."""
        body = json.dumps({"wait_s": wait_s})
        request = (
            f"POST /2015-03-31/functions/{name}/invocations HTTP/1.1\r\nHost: {self.address}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
        ).encode()
        host, port = self.address.split(":")
        connections = [socket.create_connection((host, int(port))) for _ in range(count)]
        sent = {}
        for connection in connections:
            sent[connection] = time.monotonic_ns()
            connection.sendall(request)
        starts = []
        for connection, received, answer in answers(connections):
            head, _, body = answer.decode().partition("\r\n\r\n")
            status, *lines = head.split("\r\n")
            if " 200 " not in status:
                raise SystemExit(f"not answered: {answer.decode()}")
            headers = {key.lower(): value for key, _, value in (it.partition(": ") for it in lines)}
            began, ended = json.loads(body)
            starts.append(
                Start(
                    handler_ms=(began - sent[connection]) / NS_PER_MS,
                    first_byte_ms=(received - sent[connection] - (ended - began)) / NS_PER_MS,
                    kind=headers["x-uncia-start"],
                    instance=headers["x-uncia-instance"],
                )
            )
        return starts

    def phases(self, name: str) -> Phases:
        """The phases of all starts of a function, in ms."""
        times: Phases = defaultdict(list)
        url = f"http://{self.address}/uncia/v1/spans?function={name}"
        with urllib.request.urlopen(url) as answer:
            table = pyarrow.ipc.open_stream(answer.read()).read_all()
        columns = (table[key].to_pylist() for key in ("name", "start", "end"))
        for phase, start, end in zip(*columns, strict=True):
            if phase in PHASES:
                times[phase].append((end - start) / NS_PER_MS)
        return times


def answers(connections: Sequence[socket.socket]) -> Iterator[tuple[socket.socket, int, bytes]]:
    """Connections whose answers are complete, with the time of the first byte, and the answer."""
    first: dict[socket.socket, int] = {}
    received: dict[socket.socket, bytes] = defaultdict(bytes)
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                ready = key.fileobj
                assert isinstance(ready, socket.socket)
                data = ready.recv(65536)
                first.setdefault(ready, time.monotonic_ns())
                received[ready] += data
                if not data:
                    selector.unregister(ready)
                    ready.close()
                    yield ready, first[ready], received[ready]


def cell(values: list[float]) -> str:
    """The median and the 99th percentile, which of less than 100 is the longest."""
    ordered = np.sort(np.rint(np.asarray(values) * NS_PER_MS).astype(np.int64))
    p50, p99 = (quantile(ordered, QUANTILES[name]) for name in ("p50", "p99"))
    if p50 is None or p99 is None:
        return ""
    digits = 2 if p50 < 20 * NS_PER_MS else 1
    return f"{p50 / NS_PER_MS:.{digits}f} ({p99 / NS_PER_MS:.{digits}f})"


def show(title: str, columns: dict[str, Phases], more: dict[str, list[str]]) -> None:
    """Prints a table with a column of times in ms for each kind of start."""
    print(f"\n| {title}, ms, p50 (p99) |" + "".join(f" {name} |" for name in columns))
    print("|---|" + "---|" * len(columns))
    for phase in dict.fromkeys(it for times in columns.values() for it in times):
        cells = [cell(times.get(phase, [])) for times in columns.values()]
        if any(cells):
            print(f"| {phase} | " + " | ".join(cells) + " |")
    for name, cells in more.items():
        print(f"| {name} |" + "".join(f" {it} |" for it in cells))


def column(phases: Phases, starts: list[Start]) -> Phases:
    """Phases in their order, and what clients saw."""
    times = {phase: phases.get(phase, []) for phase in PHASES}
    times["**to the handler**"] = [it.handler_ms for it in starts]
    times["**to the first byte**"] = [it.first_byte_ms for it in starts]
    return times


def show_single(platform: Platform, single: dict[str, list[Start]]) -> None:
    columns = {
        kind: column(platform.phases(function("single", kind)), starts)
        for kind, starts in single.items()
    }
    restored = [f"{sum(it.kind == 'restored' for it in kind)}" for kind in single.values()]
    count = max(map(len, single.values()))
    show("one at a time", columns, {f"of {count}, `restored`": restored})


def show_bursts(platform: Platform, bursts: dict[str, list[list[Start]]], count: int) -> None:
    columns, restored = {}, []
    last: dict[str, list[str]] = {"until the last handler": [], "until the last first byte": []}
    for kind, rounds in bursts.items():
        starts = [start for burst in rounds for start in burst]
        columns[kind] = column(platform.phases(function("burst", kind)), starts)
        restored.append(f"{sum(it.kind == 'restored' for it in starts)}")
        if len({it.instance for it in starts}) < len(starts):
            print(f"{kind}: an instance served two requests of a burst", file=sys.stderr)
        for times, values in zip(
            last.values(),
            (
                [max(it.handler_ms for it in burst) for burst in rounds],
                [max(it.first_byte_ms for it in burst) for burst in rounds],
            ),
            strict=True,
        ):
            times.append(f"{statistics.median(values):.0f}")
    rounds_made = max(map(len, bursts.values()))
    more = {f"{name}, median of {rounds_made} bursts": cells for name, cells in last.items()}
    show(f"{count} at once", columns, more | {f"of {rounds_made * count}, `restored`": restored})


def show_peers(measured: dict[str, list[peers.Start]]) -> None:
    columns = {
        name: {
            "from the start of its process to the first byte": [it.process_ms for it in starts],
            "from its first request to the first byte": [it.request_ms for it in starts],
        }
        for name, starts in measured.items()
    }
    count = max(map(len, measured.values()))
    show(f"peers, {count} starts of each", columns, {})


def function(use: str, kind: str) -> str:
    return f"{use}-{kind.replace(':', '-')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--starts", type=int, default=100, help="of each kind, one at a time")
    parser.add_argument("--burst", type=int, default=100, help="starts at once")
    parser.add_argument("--rounds", type=int, default=3, help="bursts; 0: none")
    parser.add_argument(
        "--from",
        action="append",
        dest="kinds",
        choices=KINDS,
        metavar="KIND",
        help=f"their start_from, may be repeated: {', '.join(KINDS)}",
    )
    parser.add_argument(
        "--import",
        action="append",
        default=[],
        dest="imports",
        metavar="MODULE",
        help="what the handler in Python imports besides",
    )
    parser.add_argument("--package", type=Path, metavar="FOLDER", help="a folder of their modules")
    parser.add_argument("--tag", action="append", default=[], help="of the functions: uncia:x=y")
    parser.add_argument("--peer-starts", type=int, default=20, help="of each peer")
    choice.add_options(parser)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    installed = choice.install(options)
    tags = dict(tag.split("=", 1) for tag in options.tag)
    kinds = options.kinds or [tags.pop("uncia:start-from", "fresh")]
    every = max(1, options.starts // max(1, options.peer_starts))
    single: dict[str, list[Start]] = {kind: [] for kind in kinds}
    bursts: dict[str, list[list[Start]]] = {kind: [] for kind in kinds}
    measured: dict[str, list[peers.Start]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as folder:
        platform = Platform(Path(folder) / "state")
        try:
            for kind in kinds:
                start_from = kind.removeprefix(NODE)
                kind_tags = {"uncia:keep-alive-ms": "1", "uncia:start-from": start_from} | tags
                for use in ("single", "burst"):
                    platform.create(
                        function(use, kind),
                        kind_tags,
                        options.imports,
                        node=kind.startswith(NODE),
                        folder=options.package,
                    )
            for turn in range(options.starts):
                for kind in kinds:
                    single[kind] += platform.invoke_at_once(function("single", kind), 1, 0)
                    # A started runtime is replaced meanwhile.
                    time.sleep(0.25 if kind.endswith("pool") else 0.05)
                if turn % every == 0:
                    for peer, where in installed.items():
                        measured[peer.NAME].append(peers.start(peer, where))
            show_single(platform, single)
            if measured:
                show_peers(measured)
            for _ in range(options.rounds):
                for kind in kinds:
                    wait_s = WAIT_S[kind.startswith(NODE)]
                    burst = platform.invoke_at_once(function("burst", kind), options.burst, wait_s)
                    bursts[kind].append(burst)
                    # Until they have ended.
                    time.sleep(1)
            if options.rounds:
                show_bursts(platform, bursts, options.burst)
        finally:
            platform.stop()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    if options.json is not None:
        result = {
            "single": {kind: list(map(asdict, it)) for kind, it in single.items()},
            "bursts": {
                kind: [list(map(asdict, it)) for it in burst] for kind, burst in bursts.items()
            },
            "peers": {name: list(map(asdict, it)) for name, it in measured.items()},
        }
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    stop_on_sigterm()
    main()
