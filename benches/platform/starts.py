"""What a cold start of the embedded platform takes, by phase: one at a time, and 100 at once.

The handler answers when it began, by the machine's monotonic clock, and then waits, so that no
instance serves two of a burst. *Start* is the time from the
client's request to the handler's first line; the phases are those of the platform's spans.

    .venv/bin/python benches/platform/starts.py [--starts 100] [--burst 100] [--rounds 3]
    .venv/bin/python benches/platform/starts.py --node --burst 4 --from fresh --from pool

With several kinds of start, starts one at a time are of each in turn.

The engine is the installed one, or that of UNCIA_ENGINE.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import selectors
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow.ipc

from uncia import engine

# Of the size of a small function: what compiles it again at each start shows.
HANDLER = """
import time

def handler(event, context):
    began = time.monotonic_ns()
    time.sleep(event["wait_s"])
    return began
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
  return Number(began);
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
ROLE = "arn:aws:iam::000000000000:role/bench"
NS_PER_MS = 1e6


class Platform:
    def __init__(self, state: Path) -> None:
        command = [str(engine.binary()), "serve", "--listen", "127.0.0.1:0", "--state", str(state)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
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

    def invoke_at_once(self, name: str, count: int, wait_s: float) -> list[float]:
        """Sends ``count`` requests, and returns in ms how long after that each handler began."""
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
        return [(began - sent[it]) / NS_PER_MS for it, began in self._answers(connections)]

    def _answers(self, connections: list[socket.socket]) -> Iterator[tuple[socket.socket, int]]:
        received: dict[socket.socket, bytes] = defaultdict(bytes)
        with selectors.DefaultSelector() as selector:
            for connection in connections:
                selector.register(connection, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    ready = key.fileobj
                    assert isinstance(ready, socket.socket)
                    data = ready.recv(65536)
                    received[ready] += data
                    if not data:
                        selector.unregister(ready)
                        ready.close()
                        head, _, answer = received[ready].partition(b"\r\n\r\n")
                        if b" 200 " not in head.split(b"\r\n")[0]:
                            raise SystemExit(f"not answered: {received[ready].decode()}")
                        yield ready, int(answer)

    def phases(self, name: str) -> dict[str, list[float]]:
        """The phases of all starts of a function, in ms."""
        times: dict[str, list[float]] = defaultdict(list)
        url = f"http://{self.address}/uncia/v1/spans?function={name}"
        with urllib.request.urlopen(url) as answer:
            table = pyarrow.ipc.open_stream(answer.read()).read_all()
        columns = (table[key].to_pylist() for key in ("name", "start", "end"))
        for phase, start, end in zip(*columns, strict=True):
            if phase in PHASES:
                times[phase].append((end - start) / NS_PER_MS)
        return times


def row(name: str, values: list[float]) -> str:
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"| {name} | {statistics.median(ordered):.2f} | {p99:.2f} | {ordered[-1]:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--starts", type=int, default=100, help="starts one at a time")
    parser.add_argument("--burst", type=int, default=100, help="starts at once")
    parser.add_argument("--rounds", type=int, default=3, help="bursts")
    parser.add_argument("--node", action="store_true", help="functions in Node.js, not Python")
    parser.add_argument(
        "--from", action="append", dest="kinds", metavar="KIND", help="their start_from"
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
    options = parser.parse_args()
    tags = dict(tag.split("=", 1) for tag in options.tag)
    kinds = options.kinds or [tags.pop("uncia:start-from", "fresh")]
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as folder:
        platform = Platform(Path(folder) / "state")
        try:
            for kind in kinds:
                kind_tags = {"uncia:keep-alive-ms": "1", "uncia:start-from": kind} | tags
                for name in (f"single-{kind}", f"burst-{kind}"):
                    platform.create(
                        name, kind_tags, options.imports, node=options.node, folder=options.package
                    )
            single: dict[str, list[float]] = defaultdict(list)
            for _ in range(options.starts):
                for kind in kinds:
                    single[kind] += platform.invoke_at_once(f"single-{kind}", 1, 0)
                    # A started runtime is replaced meanwhile.
                    time.sleep(0.25 if kind == "pool" else 0.05)
            for kind in kinds:
                burst, last = [], []
                for _ in range(options.rounds):
                    times = platform.invoke_at_once(f"burst-{kind}", options.burst, 3)
                    burst += times
                    last.append(max(times))
                    time.sleep(1)
                for title, name, times in (
                    (f"{kind}, one at a time", f"single-{kind}", single[kind]),
                    (f"{kind}, {options.burst} at once", f"burst-{kind}", burst),
                ):
                    print(f"\n| {title}, ms | p50 | p99 | max |\n|---|---|---|---|")
                    phases = platform.phases(name)
                    for phase in PHASES:
                        if phases[phase]:
                            print(row(phase, phases[phase]))
                    print(row("start", times))
                median = statistics.median(last)
                print(f"\nuntil the last of {options.burst}: {median:.0f} ms (median)")
        finally:
            platform.stop()


if __name__ == "__main__":
    main()
