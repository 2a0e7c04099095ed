"""CPUs that a function names, and its shares of them, as the kernel has them."""

import os
from pathlib import Path

import control_groups
import pytest
from botocore.exceptions import ClientError

from .conftest import Serve

WHERE = """
import os

def handler(event, context):
    return {"cpus": sorted(os.sched_getaffinity(0))}
"""
CPU = max(os.sched_getaffinity(0))
V1 = Path("/sys/fs/cgroup/cpuset/cpuset.cpus").exists()


def weights() -> set[int]:
    """Those of all groups of platforms, as far as they stay."""
    values = set()
    for folder in [*control_groups.named("function-*"), *control_groups.named("????????????????")]:
        try:
            name = "cpu.shares" if V1 else "cpu.weight"
            values.add(int((folder / name).read_text()))
        except (OSError, ValueError):
            continue
    return values


@pytest.mark.parametrize("start", ["fresh", "prepared", "zygote", "pool"])
def test_an_instance_runs_on_the_cpus_that_it_names(serve: Serve, start: str) -> None:
    platform = serve({"cpusets": True})
    tags = {"uncia:cpus": str(CPU), "uncia:start-from": start}
    platform.create("f", WHERE, Tags=tags)
    platform.create("free", WHERE, Tags={"uncia:start-from": start})
    for _ in range(2):
        assert platform.invoke("f")[1]["cpus"] == [CPU]
    assert platform.invoke("free")[1]["cpus"] == sorted(os.sched_getaffinity(0))


def test_a_function_has_its_shares(serve: Serve) -> None:
    platform = serve()
    platform.create("few", WHERE, Tags={"uncia:cpu-shares": "2"})
    platform.create("more", WHERE, Tags={"uncia:cpu-shares": "3072", "uncia:start-from": "fresh"})
    for name in ("few", "more"):
        platform.invoke(name)
    assert {2, 3_072} <= weights() if V1 else {1, 300} <= weights()


def test_what_cannot_be_had_is_refused(serve: Serve) -> None:
    platform = serve({"cpusets": True})
    for tags, message in (
        ({"uncia:cpus": f"{CPU},1023"}, "There is no CPU 1023 that this platform may run on"),
        ({"uncia:cpus": "3-1"}, "must be numbers of CPUs, such as 0,2-3"),
        ({"uncia:cpu-shares": "1"}, "between 2 and 262144"),
    ):
        with pytest.raises(ClientError, match=message):
            platform.create("f", WHERE, Tags=tags)
    platform.stop()
    plain = serve()
    with pytest.raises(ClientError, match="needs a platform that was started with cpusets"):
        plain.create("f", WHERE, Tags={"uncia:cpus": str(CPU)})
