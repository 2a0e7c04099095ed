"""Whose the CPUs are, by what this machine's kernel offers; and what is borrowed and lent."""

import concurrent.futures
import json
import os
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from uncia import tariffs
from uncia.platforms import inquiries
from uncia.tariffs import bill

from .conftest import Platform, Serve
from .test_serving import log

CPUS = len(os.sched_getaffinity(0))
MIB = 1 << 20
CORE = {"uncia:cpu-micro": "1000000"}
BATCH = {**CORE, "uncia:spot-cpu-micro": "1000000", "uncia:preemptible": "true"}
# Where it may run, after having used so much CPU time and, until then, so much memory.
BURN = """
import os, time

def handler(event, context):
    held = bytearray(event.get("mib", 0) << 20)
    held[::4096] = b"x" * len(held[::4096])
    while time.process_time() < event["s"]:
        pass
    return sorted(os.sched_getaffinity(0))
"""

HOLD = """
import time

def handler(event, context):
    held = bytearray(event["mib"] << 20)
    held[::4096] = b"x" * len(held[::4096])
    time.sleep(event["s"])
"""


def shared(serve: Serve, how: str, **config: Any) -> Platform:
    room = {"capacity_cpu_micro": CPUS * 1_000_000, "capacity_memory_bytes": 1024 * MIB}
    return serve({**room, "cpu_sharing": how, **config})


def both(platform: Platform, *events: tuple[str, Any]) -> list[Any]:
    with concurrent.futures.ThreadPoolExecutor() as threads:
        return list(threads.map(lambda event: platform.invoke(*event)[1], events))


def test_pinned_instances_run_on_the_cores_that_they_reserve(serve: Serve) -> None:
    platform = shared(serve, "pinned")
    for name in ("f", "g")[:CPUS]:
        platform.create(name, BURN, Tags=CORE)
    platform.create("part", BURN, Tags={"uncia:cpu-micro": "500000"})
    # Whichever runs beside which, each has one core of its own.
    for cpus in both(platform, *[(name, {"s": 0.3}) for name in ("f", "g")[:CPUS]]):
        assert len(cpus) == 1
    assert len(platform.invoke("part", {"s": 0.1})[1]) == 1
    rows = {row["function"]: row for row in log(platform)}
    for name in ("f", "g")[:CPUS]:
        assert rows[name]["borrowed_cpu_time"] == 0
        assert rows[name]["lent_cpu_time"] >= 0
        assert rows[name]["reserved_cpu_time"] == rows[name]["execution"]
    # Whose a part of a core is cannot be told.
    assert rows["part"]["borrowed_cpu_time"] is None
    assert abs(rows["part"]["reserved_cpu_time"] * 2 - rows["part"]["execution"]) <= 1


def test_what_is_all_reserved_borrows_nothing_whoever_runs_beside_it(serve: Serve) -> None:
    platform = shared(serve, "idle", policies={"admission": "leopard"})
    platform.create("f", BURN, Tags=CORE)
    platform.create("batch", BURN, Tags=BATCH, MemorySize=256)
    platform.create("part", BURN, Tags={"uncia:cpu-micro": "500000"})
    ran, everywhere = both(platform, ("f", {"s": 0.4}), ("batch", {"s": 0.4}))
    assert (len(ran), len(everywhere)) == (1, CPUS)
    rows = {row["function"]: row for row in log(platform)}
    assert rows["f"]["borrowed_cpu_time"] == 0
    # What others used of its core, and no more than they used in all.
    assert 0 <= rows["f"]["lent_cpu_time"] <= rows["f"]["execution"]
    # Nobody has a part of a core alone.
    assert len(platform.invoke("part", {"s": 0.1})[1]) == CPUS


def test_what_batch_work_borrows_is_lent_and_billed(serve: Serve, tmp_path: Path) -> None:
    platform = shared(serve, "idle", policies={"admission": "leopard"})
    platform.create("now", BURN, Tags={"uncia:cpu-micro": str(CPUS * 1_000_000)})
    platform.create("batch", BURN, Tags=BATCH, MemorySize=256)
    both(platform, ("now", {"s": 0.5}), ("batch", {"s": 0.3, "mib": 50}))
    rows = {row["function"]: row for row in log(platform)}
    now, batch = rows["now"], rows["batch"]
    assert batch["borrowed_cpu_time"] == batch["cpu_user"] + batch["cpu_system"] > 0
    assert (batch["lent_cpu_time"], batch["reserved_cpu"], batch["spot_cpu"]) == (0, 0, 1_000_000)
    # All cores are its own, so that it borrows none and lends what others use meanwhile.
    assert now["borrowed_cpu_time"] == 0
    assert now["lent_cpu_time"] >= 0
    assert (now["qos"], now["preemptible"], now["spot_cpu"]) == ("interactive", False, 0)
    # There is more memory than is reserved.
    assert (now["lent_memory_avg"], batch["lent_memory_avg"]) == (0, 0)

    page, _, _ = inquiries.fetch_page(platform.address, "invocations", 0, print)
    pq.write_table(page, tmp_path / "rows.parquet")
    (cost,) = (
        Decimal(line.cost_usd or 0)
        for line in bill(str(tmp_path / "rows.parquet"), [npfu(tmp_path)])
    )
    seconds, gigabytes = Decimal(10) ** 9, Decimal(2) ** 30
    expected = (
        Decimal("0.000024") * now["reserved_cpu"] / 10**6 * now["execution"] / seconds
        - Decimal("0.000012") * now["lent_cpu_time"] / seconds
        + Decimal("0.0000025") * now["allocated_memory"] / gigabytes * now["execution"] / seconds
        + Decimal("0.000012") * batch["borrowed_cpu_time"] / seconds
        + Decimal("0.00000125") * batch["memory_avg"] / gigabytes * batch["execution"] / seconds
    )
    assert cost > 0
    assert float(cost) == pytest.approx(float(expected), rel=1e-6)


def npfu(folder: Path) -> str:
    """A copy of the tariff with half of each price for what is borrowed, lent or preemptible."""
    text = Path(tariffs.__file__).with_name("npfu.yaml").read_text(encoding="utf-8")
    for price in ("0.000012", "0.000012", "0.00000125", "0.00000125"):
        text = text.replace("price: null", f'price: "{price}"', 1)
    file = folder / "npfu-half.yaml"
    file.write_text(text.replace("id: npfu", "id: npfu-half"), encoding="utf-8")
    return str(file)


def test_preemptible_memory_beyond_what_is_nobodys_is_lent(serve: Serve) -> None:
    room = {"capacity_cpu_micro": 2_000_000, "capacity_memory_bytes": 300 * MIB}
    platform = serve({**room, "policies": {"admission": "leopard"}})
    platform.create("now", HOLD, MemorySize=256, Tags=CORE)
    platform.create("batch", HOLD, MemorySize=256, Tags=BATCH)
    # What has no past is expected to use all that it may, so that nothing runs beside it.
    both(platform, ("now", {"s": 0, "mib": 0}))
    both(platform, ("batch", {"s": 0, "mib": 90}))
    held = 2
    both(platform, ("now", {"s": held, "mib": 0}), ("batch", {"s": held, "mib": 90}))
    rows = {row["function"]: row for row in log(platform)}  # the last of each
    now, batch = rows["now"], rows["batch"]
    # At most what batch work used beyond the 44 MiB that nobody reserved.
    assert 0 <= now["lent_memory_avg"] <= batch["memory_peak"] - 44 * MIB
    assert batch["lent_memory_avg"] == 0
    # It had all of its memory at least while it slept.
    asleep = batch["ended"] - held * 10**9
    if min(now["ended"], batch["ended"]) - max(now["started"], asleep) > 10**9:
        assert now["lent_memory_avg"] > 0


def test_weights_measure_what_they_can(serve: Serve) -> None:
    platform = shared(serve, "weights")
    platform.create("f", BURN, Tags=CORE)
    platform.create("batch", BURN, Tags=BATCH)
    both(platform, ("f", {"s": 0.05}), ("batch", {"s": 0.05}))
    rows = {row["function"]: row for row in log(platform)}
    assert (rows["f"]["borrowed_cpu_time"], rows["f"]["lent_cpu_time"]) == (None, None)
    assert rows["f"]["reserved_cpu_time"] == rows["f"]["execution"]
    assert rows["batch"]["borrowed_cpu_time"] > 0


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"cpu_sharing": "pinned"}, "need a capacity_cpu of at most"),
        ({"cpu_sharing": "idle", "capacity_cpu_micro": 10**9}, "it is 1000 vCPU"),
        (
            {"cpu_sharing": "idle", "policies": {"cpu": "pinned"}},
            "`cpu_sharing` and `policies.cpu` are the same choice",
        ),
    ],
)
def test_cores_that_there_are_not_cannot_be_shared(
    engine_binary: Path, tmp_path: Path, config: dict[str, Any], sentence: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    command = [str(engine_binary), "serve", "--state", str(tmp_path / "s"), "--config", str(file)]
    refused = subprocess.run(
        [*command, "--listen", "127.0.0.1:0"], check=False, capture_output=True, text=True
    )
    assert refused.returncode != 0
    assert sentence in refused.stderr
    assert not (tmp_path / "s").exists()
