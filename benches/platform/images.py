"""What a start of a function that is a large image takes, beside the same program in a zip file.

The image has a layer with the program and layers of incompressible files, made here. Starts of both
take turns, after the first of each: *start* is the platform's own word for the time until the
program asks for its first event, *cold* the client's until the answer.

    .venv/bin/python benches/platform/images.py [--size 1GB] [--starts 100]

The engine is the installed one, or that of UNCIA_ENGINE. Takes a C compiler, and three times the
size on the disk of the temporary folder.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from ending import start_program, stop_on_sigterm

from uncia import engine
from uncia.functions.compiler import compile_c
from uncia.functions.images import Execution, Layer, write_image
from uncia.layouts import LayerWriter
from uncia.units import MIB, parse_size

PROGRAM = Path(__file__).parents[2] / "tests/lambda_api/image_bootstrap.c"
ROLE = "arn:aws:iam::000000000000:role/bench"
LAYERS = 4
FILE_BYTES = 4 * MIB
NS_PER_MS = 1e6


def blocks(seed: int, size: int) -> Iterator[bytes]:
    numbers = random.Random(seed)
    for start in range(0, size, MIB):
        yield numbers.randbytes(min(MIB, size - start))


def write_layer(path: Path, number: int, size: int) -> Layer:
    with path.open("wb") as file, LayerWriter(file) as writer:
        for index, start in enumerate(range(0, size, FILE_BYTES)):
            length = min(FILE_BYTES, size - start)
            name = f"data/{number}/{index:05}"
            writer.add_blocks(name, length, blocks(number << 20 | index, length))
    return Layer(path)


def write(folder: Path, program: Path, size: int) -> Path:
    """Write the image's layout, and return its folder."""
    base = folder / "program.tar"
    with base.open("wb") as file, LayerWriter(file) as writer:
        writer.add_file("bootstrap", program, 0o755)
    layers = [Layer(base)]
    for number in range(LAYERS):
        layers.append(write_layer(folder / f"{number}.tar", number, size // LAYERS))
    return write_image(folder / "image", layers, Execution(("/bootstrap",))).folder


def zipped(program: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        entry = zipfile.ZipInfo("bootstrap")
        entry.external_attr = 0o755 << 16
        archive.writestr(entry, program.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


class Platform:
    def __init__(self, folder: Path) -> None:
        config = folder / "config.json"
        config.write_text(json.dumps({"images": [str(folder)]}))
        state = str(folder / "state")
        options = ["--listen", "127.0.0.1:0", "--state", state, "--config", str(config)]
        command = [str(engine.binary()), "serve", *options]
        self.process = start_program(command)
        assert self.process.stdout is not None
        address = json.loads(self.process.stdout.readline())["address"]
        self.client = boto3.client(
            "lambda",
            endpoint_url=f"http://{address}",
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=Config(retries={"total_max_attempts": 1}, read_timeout=900, proxies={}),
        )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def create(self, name: str, code: dict[str, Any], **settings: Any) -> float:
        """Create a function, and return how long that took, in s."""
        began = time.monotonic()
        self.client.create_function(
            FunctionName=name,
            Role=ROLE,
            Code=code,
            MemorySize=1769,
            # No instance serves two.
            Tags={"uncia:keep-alive-ms": "1"},
            **settings,
        )
        return time.monotonic() - began

    def start(self, name: str) -> tuple[float, float]:
        """Start an instance for an event; its start and the client's latency, in ms."""
        began = time.monotonic_ns()
        answer = self.client.invoke(FunctionName=name, Payload=b"0")
        answer["Payload"].read()
        cold = (time.monotonic_ns() - began) / NS_PER_MS
        if "FunctionError" in answer:
            raise SystemExit(f"{name} was not answered")
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        if headers["x-uncia-start"] == "warm":
            raise SystemExit(f"{name} was answered by an instance that had lived on")
        return int(headers["x-uncia-initialization-ns"]) / NS_PER_MS, cold


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--size", type=parse_size, default="1GB", help="of the image")
    parser.add_argument("--starts", type=int, default=100, help="of each, after the first")
    options = parser.parse_args()
    program = compile_c(PROGRAM)
    with tempfile.TemporaryDirectory(prefix="uncia-bench-") as name:
        folder = Path(name)
        layout = write(folder, program, options.size)
        platform = Platform(folder)
        try:
            runtime = {"Runtime": "provided.al2023", "Handler": "any"}
            platform.create("zip", {"ZipFile": zipped(program)}, **runtime)
            image = {"ImageUri": f"oci:{layout}"}
            seconds = platform.create("image", image, PackageType="Image")
            again = platform.create("again", image, PackageType="Image")
            print(f"deployed in {seconds:.1f} s; a second function of it in {again * 1e3:.0f} ms\n")
            starts: dict[tuple[str, str], list[float]] = defaultdict(list)
            for number in range(options.starts + 1):
                for kind in ("zip", "image"):
                    start, cold = platform.start(kind)
                    time.sleep(0.05)  # what it has taken is replaced
                    if number:
                        starts[kind, "start"].append(start)
                        starts[kind, "cold"].append(cold)
                    else:
                        print(f"first {kind}: start {start:.1f} ms, cold {cold:.1f} ms")
        finally:
            platform.stop()
    print("\n| | p50 | p99 | most |\n|---|---|---|---|")
    for (kind, what), values in starts.items():
        values.sort()
        p99 = values[min(len(values) - 1, len(values) * 99 // 100)]
        print(
            f"| {kind}, {what} | {statistics.median(values):.2f} | {p99:.2f} | {values[-1]:.2f} |"
        )
    medians = {kind: statistics.median(starts[kind, "start"]) for kind in ("zip", "image")}
    print(f"\nthe image's start takes {medians['image'] - medians['zip']:+.2f} ms (medians)")


if __name__ == "__main__":
    stop_on_sigterm()
    main()
