"""What forwarding to a service costs: from an instance through the worker, against the host itself.

The service is a program that answers a byte with 1 KB, and takes whatever it is sent. The same
program reads from it and sends into it, on the host and as a function of the embedded platform,
whose endpoint inside the instance the worker passes on. In turns:

* *read*: the median of reads of 1 KB on one connection, from inside less that from the host;
* *sink*: the bandwidth of one connection into the service, from inside.

Run it on a machine that is otherwise idle, with the engine built for release:

    make build && .venv/bin/python benches/chains/forwarding.py [--turns 10] [--reads 2000]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from uncia import engine, functions
from uncia.platforms import ServiceEndpoint
from uncia.platforms.embedded import service_config

MOST_ADDED_MS = 0.2
LEAST_GBPS = 3.0
SENT = 1 << 30
ROLE = "arn:aws:iam::000000000000:role/bench"


def started(command: list[str]) -> tuple[subprocess.Popen[str], str]:
    """A process, and the first line that it prints."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def client(address: str) -> Any:
    return boto3.client(
        "lambda",
        endpoint_url=f"http://{address}",
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": 1}, proxies={}, read_timeout=60),
    )


def measured(turns: int, reads: int, folder: Path) -> dict[str, list[float]]:
    """Medians of reads in ms and bandwidths in Gb/s, of each turn, inside and on the host."""
    made = functions.package(Path(__file__).parent / "forwarding")
    with zipfile.ZipFile(made.path) as archive:
        program = Path(archive.extract("bootstrap", folder))
    program.chmod(0o755)
    service, address = started([str(program), "serve"])
    endpoint = ServiceEndpoint(address)
    config = folder / "config.json"
    config.write_text(json.dumps({"services": service_config({"store": endpoint})}))
    options = ["--listen", "127.0.0.1:0", "--state", str(folder / "state")]
    command = [str(engine.binary()), "serve", *options, "--config", str(config)]
    platform, line = started(command)
    figures: dict[str, list[float]] = {}
    try:
        api = client(json.loads(line)["address"])
        api.create_function(
            FunctionName="forwarding",
            Runtime="provided.al2023",
            Handler="bootstrap",
            Role=ROLE,
            Code={"ZipFile": made.read_bytes()},
            MemorySize=1769,
            Timeout=60,
            Tags={"uncia:reach": "store"},
        )
        for turn in range(turns + 1):
            for key, event in (("read", {"reads": reads}), ("sink", {"send": SENT})):
                text = json.dumps(event)
                words = [str(program), "host", address, text]
                outside = json.loads(subprocess.check_output(words, text=True))
                answer = api.invoke(FunctionName="forwarding", Payload=text.encode())
                inside = json.loads(answer["Payload"].read())
                if "FunctionError" in answer:
                    raise SystemExit(inside["errorMessage"])
                # The first turn is a cold start.
                for side, it in (("host", outside), ("inside", inside)):
                    values = figures.setdefault(f"{key} {side}", [])
                    if turn and key == "read":
                        values.append(statistics.median(it["reads_ns"]) / 1e6)
                    elif turn:
                        values.append(SENT * 8 / it["send_ns"])
    finally:
        for process in (platform, service):
            process.terminate()
            process.wait()
    return figures


def main() -> int:
    """Print the figures; 1 if one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--reads", type=int, default=2_000, help="of each turn")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(arguments.turns, arguments.reads, Path(folder))
    middle = {key: statistics.median(values) for key, values in figures.items()}
    added = middle["read inside"] - middle["read host"]
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs")
    for key, values in figures.items():
        unit = "ms" if key.startswith("read") else "Gb/s"
        print(f"{key:12} {middle[key]:7.3f} {unit} ({min(values):.3f} to {max(values):.3f})")
    print(f"added to a read of 1 KB: {added:.3f} ms (at most {MOST_ADDED_MS})")
    print(f"into a sink: {middle['sink inside']:.2f} Gb/s (at least {LEAST_GBPS})")
    return int(added > MOST_ADDED_MS or middle["sink inside"] < LEAST_GBPS)


if __name__ == "__main__":
    sys.exit(main())
