"""Programs that ask much of the kernel do what they can in instances, under the filter of calls.

In each kind of network, because instances are made differently for each. What the filter refuses is
tested in Rust, call by call.
"""

import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from uncia import functions
from uncia.errors import UnciaError

from .conftest import Platform, package
from .test_layers import publish

PROGRAMS: Final = Path(__file__).parent / "programs"
NETWORKS: Final = ("none", "platform", "host")
# Two vCPUs: threads that wait for each other busily use up a quota otherwise.
MEMORY_MB: Final = 2 * 1769
FILTERED: Final = {"filters": ["2"]}


def answers(platform: Platform, name: str, **settings: Any) -> dict[str, Any]:
    """What a function answers in each kind of network, to its first request and to its second."""
    result = {}
    for network in NETWORKS:
        function = f"{name}-{network}"
        platform.create(function, MemorySize=MEMORY_MB, Tags={"uncia:network": network}, **settings)
        first, payload = platform.invoke(function)
        assert "FunctionError" not in first, payload
        # Once it has started threads and compiled what runs often, it goes on.
        assert platform.invoke(function)[1] == payload
        result[network] = payload
    return result


def of_python(platform: Platform, name: str, layers: dict[str, bytes]) -> dict[str, Any]:
    published = [publish(platform, it, zipped) for it, zipped in layers.items()]
    source = {path.name: path.read_text() for path in PROGRAMS.glob("*.py")}
    return answers(
        platform,
        name,
        Code={"ZipFile": package(source)},
        Handler=f"{name}.handler",
        Layers=[it["LayerVersionArn"] for it in published],
        Environment={"Variables": {"OPENBLAS_NUM_THREADS": "4"}},
    )


def test_numpy(own_python: Platform, numpy_layer: bytes) -> None:
    by_network = of_python(own_python, "arrays", {"numpy": numpy_layer})
    for network, answer in by_network.items():
        # BLAS has no more threads than there are processors.
        assert answer.pop("threads") >= min(4, answer.pop("cpus")), network
        assert answer == FILTERED | {
            "solved": True,
            "positive": True,
            "peak": 5,
            "mapped": 499_500,
            "loaded": True,
            "shuffled": [0, 1, 2, 3, 4],
        }


def test_onnxruntime(own_python: Platform, numpy_layer: bytes, onnxruntime_layer: bytes) -> None:
    layers = {"numpy": numpy_layer, "onnxruntime": onnxruntime_layer}
    answer = FILTERED | {"right": [True] * 6, "threads": True}
    assert of_python(own_python, "model", layers) == dict.fromkeys(NETWORKS, answer)


@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(("option", "collector"), [("Serial", "Copy"), ("G1", "G1")])
def test_java(platform: Platform, option: str, collector: str) -> None:
    made = functions.package(PROGRAMS / "java")
    by_network = answers(
        platform,
        "java",
        Code={"ZipFile": made.read_bytes()},
        Runtime="java21",
        Handler=made.handler,
        Environment={"Variables": {"JAVA_TOOL_OPTIONS": f"-XX:+Use{option}GC"}},
    )
    answer = FILTERED | {
        "sum": 499_999_500_000,
        "threads": [number * number for number in range(8)],
        "reflection": ["text", 7, 99],
        "collected": True,
        "collector": collector,
        "fetched": "over the network",
        "files": "text",
    }
    assert by_network == dict.fromkeys(NETWORKS, answer)


def test_node(platform: Platform) -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no Node.js")
    by_network = answers(
        platform,
        "node",
        Code={"ZipFile": package({"handler.js": (PROGRAMS / "handler.js").read_text()})},
        Runtime="nodejs20.x",
        # Where there is a network, whoever resolves names may not answer.
        Environment={"Variables": {"RES_OPTIONS": "timeout:1 attempts:1"}},
    )
    for answer in by_network.values():
        assert answer.pop("missing") in ("ENOTFOUND", "EAI_AGAIN")
    answer = FILTERED | {
        "sums": [499_500] * 3,
        "crypto": ["text", True],
        "files": ["text", ["one", "three"]],
        "fetched": "over the network",
        "interfaces": True,
        "threads": True,
    }
    assert by_network == dict.fromkeys(NETWORKS, answer)


def test_go(platform: Platform) -> None:
    try:
        made = functions.package(PROGRAMS / "go")
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    by_network = answers(
        platform,
        "go",
        Code={"ZipFile": made.read_bytes()},
        Runtime="provided.al2023",
        Handler=made.handler,
    )
    answer = FILTERED | {
        "sum": 19_900,
        "collected": True,
        "fetched": "over the network",
        "files": "text",
        "process": "text\n",
        "interfaces": True,
    }
    assert by_network == dict.fromkeys(NETWORKS, answer)
