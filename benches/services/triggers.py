"""How long a change of a document takes to begin the function that a trigger names.

From before the document is sent to its server until the function's instance is given the event, by
the real-time clock of this machine, warm, one change at a time. Run it on a quiet machine:

    PYTHONPATH=python .venv/bin/python benches/services/triggers.py 300
"""

from __future__ import annotations

import io
import statistics
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from uncia.platforms import boto, inquiries, triggers
from uncia.platforms.embedded import service_config
from uncia.platforms.server import Server
from uncia.services import documents, redis_server

HANDLER = "def handler(event, context):\n    return {}\n"
WARM_UP = 20
GAP_S = 0.02


def main(count: int) -> None:
    """Print the median and the 99th percentile of ``count`` changes, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        served = redis_server.Server(Path(folder) / "served", 64 << 20)
        variables = {documents.PASSWORD: served.password, documents.PREFIX: "bench:"}
        endpoint = documents.prepare(served.address, variables)
        server = Server(
            Path(folder) / "state", {"services": service_config({"documents": endpoint})}
        )
        try:
            measure(server, endpoint, count)
        finally:
            server.stop()
            served.stop()


def measure(server: Server, endpoint: documents.ServiceEndpoint, count: int) -> None:
    """Have documents change, and compare with when the platform says that the function began."""
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("main.py", HANDLER)
    boto.client(server.address).create_function(
        FunctionName="f",
        Runtime=f"python3.{sys.version_info.minor}",
        Role=boto.ROLE,
        Handler="main.handler",
        Code={"ZipFile": code.getvalue()},
    )
    triggers.put(server.address, "t", {"prefix": "a/", "function": "f"})
    sent: dict[str, int] = {}
    with documents.connection(endpoint.address, endpoint.environment) as connection:
        words = (endpoint.environment[documents.SCRIPT], 4, *documents.keys("bench:"))
        for number in range(WARM_UP + count):
            sent[f"t:{number + 1}"] = time.time_ns()
            connection.call("EVALSHA", *words, "transact", "", "put", f"a/{number}", "", "{}")
            time.sleep(GAP_S)
    while not triggers.is_settled(server.address):
        time.sleep(0.05)
    rows, _ = inquiries.fetch_rows(server.address, "invocations", 0, print)
    took = sorted(
        (row["started"] - sent[row["invocation"]]) / 1e6
        for row in rows.to_pylist()
        if int(row["invocation"].partition(":")[2]) > WARM_UP
    )
    assert len(took) == count, f"{len(took)} of {count} began something"
    median, tail = statistics.median(took), took[-1 - count // 100]
    print(f"{count} changes: p50 {median:.2f} ms, p99 {tail:.2f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
