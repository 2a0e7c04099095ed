"""Copies of one process that live at the same time share no randomness, with NumPy and without.

With ``zygote`` they are copies of an interpreter, in which nothing of NumPy is; with
``function_zygote`` of a process that has imported it, seeded what can be seeded, and drawn from it.
"""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest
from patience import scaled

from .conftest import Platform
from .test_layers import publish

COPIES: Final = 3

SOURCE: Final = """
import os
import random
import secrets
import ssl
import tempfile
import time
import uuid

import numpy

if os.environ["seed"]:
    random.seed(1)
    if os.environ["seed"] == "PCG64":
        numpy.random.set_bit_generator(numpy.random.PCG64(1))
    else:
        numpy.random.seed(1)
import_generator = numpy.random.default_rng()
# Each has a state now that copies could share.
drawn = [random.random(), secrets.token_hex(), ssl.RAND_bytes(8), tempfile.mktemp()]
drawn += [uuid.uuid4(), uuid.uuid1(), numpy.random.random(), numpy.random.bytes(8)]
# Of each pair of these, the second is kept.
drawn += [random.gauss(0, 1), numpy.random.normal()]
stream = os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]
os.environ["set"] = "at import"


def handler(event, context):
    with tempfile.NamedTemporaryFile() as file, open("/proc/self/status") as status:
        named = file.name
        filtered = [line.split()[1] for line in status if line.startswith("Seccomp:")]
    numbers = {
        "random": random.random(),
        "random.gauss": random.gauss(0, 1),
        "secrets": secrets.token_hex(),
        "system": random.SystemRandom().random(),
        "urandom": os.urandom(16).hex(),
        "uuid1": str(uuid.uuid1()),
        "uuid4": str(uuid.uuid4()),
        "ssl": ssl.RAND_bytes(16).hex(),
        "tempfile": named,
        "mkdtemp": tempfile.mkdtemp(),
        "numpy": numpy.random.random(),
        "numpy.normal": numpy.random.normal(),
        "numpy.bytes": numpy.random.bytes(16).hex(),
        "numpy.permutation": numpy.random.permutation(1000).tolist(),
        "numpy.default_rng": numpy.random.default_rng().random(),
        "numpy.RandomState": numpy.random.RandomState().random_sample(),
        "numpy.Generator": numpy.random.Generator(numpy.random.Philox()).random(),
    }
    # Nobody else is served by this instance meanwhile.
    time.sleep(event["wait"])
    product = numpy.ones((300, 300)) @ numpy.ones((300, 300))
    return {
        "randomness": numbers,
        "own generator": import_generator.random(),
        "at import": [drawn[1], stream],
        "stream": os.environ["AWS_LAMBDA_LOG_STREAM_NAME"],
        "variables": [os.environ["seed"], os.environ["set"]],
        "descriptors": sorted(os.listdir("/proc/self/fd")),
        "filtered": filtered,
        "product": float(product.sum()),
        "threads": len(os.listdir("/proc/self/task")),
    }
"""


def create(platform: Platform, numpy_layer: bytes, start_from: str, seed: str) -> None:
    platform.create(
        "f",
        SOURCE,
        MemorySize=2 * 1769,
        Layers=[publish(platform, "numpy", numpy_layer)["LayerVersionArn"]],
        Tags={"uncia:start-from": start_from},
        Environment={"Variables": {"seed": seed}},
    )


def copies(platform: Platform) -> list[dict[str, Any]]:
    """What several copies answer that live at the same time, each to its first request."""

    def invoke(_: int) -> tuple[str, dict[str, Any]]:
        answer, payload = platform.invoke("f", {"wait": scaled(1)})
        assert "FunctionError" not in answer, payload
        return answer["ResponseMetadata"]["HTTPHeaders"]["x-uncia-start"], payload

    deadline = time.monotonic() + scaled(60)
    while True:
        with ThreadPoolExecutor(COPIES) as threads:
            answers = list(threads.map(invoke, range(COPIES)))
        payloads = [payload for start, payload in answers if start == "restored"]
        if len(payloads) == COPIES:
            return payloads
        # None was ready when they were called. Those that live now end when their function changes.
        assert time.monotonic() < deadline, [start for start, _ in answers]
        function = platform.client.get_function_configuration(FunctionName="f")
        variables = function["Environment"]["Variables"] | {"turn": str(time.monotonic_ns())}
        platform.client.update_function_configuration(
            FunctionName="f", Environment={"Variables": variables}
        )


@pytest.mark.parametrize(
    ("start_from", "seed"),
    [
        # Whose import runs in each copy, which would be right to have what its own seed makes.
        ("zygote", ""),
        ("function_zygote", "MT19937"),
        ("function_zygote", "PCG64"),
    ],
)
def test_copies_that_live_at_once_share_no_randomness(
    own_python: Platform, numpy_layer: bytes, start_from: str, seed: str
) -> None:
    create(own_python, numpy_layer, start_from, seed)
    payloads = copies(own_python)
    first = payloads[0]
    numbers = [json.dumps(number) for it in payloads for number in it["randomness"].values()]
    assert len(set(numbers)) == COPIES * len(first["randomness"]), numbers
    assert len({it["stream"] for it in payloads}) == COPIES
    shared = start_from == "function_zygote"
    # What the import has made is one for all copies of it, as docs/explanation/cold-start.md says:
    # numbers that it has drawn, names that it has noted, and generators of its own.
    assert len({it["own generator"] for it in payloads}) == (1 if shared else COPIES)
    assert len({str(it["at import"]) for it in payloads}) == (1 if shared else COPIES)
    for copy in payloads:
        assert (copy["at import"][1] == copy["stream"]) == (not shared)
        assert copy["variables"] == [seed, "at import"]
        # The streams, the socket of the Runtime API's client, and the listing's own.
        assert len(copy["descriptors"]) == 5
        assert copy["filtered"] == ["2"]
        assert copy["product"] == 300**3
        # Of linear algebra: those that the import has started are gone, and each has its own.
        assert copy["threads"] >= min(2, len(os.sched_getaffinity(0)))
