"""The bills of all platforms once more, in plain Python and by other means than the product's.

Rules are written out by hand from Table 1 of the cost paper and the public documentation; nothing
is read from the catalogue. Integers and fractions only.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

MB = 1 << 20
GB = 1 << 30
MS = 10**6
S = 10**9
MICRO = 10**6


@dataclass(frozen=True)
class Price:
    """What a row costs: micro-vCPU x ns, bytes x ns, dollars; None where it cannot be priced."""

    vcpu: int | None
    memory: int
    cost: Fraction


def ceil_to(value: int, step: int) -> int:
    return -(-value // step) * step


def _priced(cpu: int | None, memory: int, time: int, per_vcpu: str, per_gb: str, fee: str) -> Price:
    vcpu_time = None if cpu is None else cpu * time
    cost = Fraction(per_gb) * memory * time / (GB * S) + Fraction(fee)
    if Fraction(per_vcpu):
        assert vcpu_time is not None
        cost += Fraction(per_vcpu) * vcpu_time / (MICRO * S)
    return Price(vcpu_time, memory * time, cost)


def lambda_size(cpu: int | None, memory: int, step: int, low: int, high: int) -> tuple[int, int]:
    """Smallest memory whose share, rounded up to a micro-vCPU, reaches the vCPU; LookupError."""
    size = max(ceil_to(memory, step), low)
    if cpu is not None:
        while -(-size * MICRO // (1769 * MB)) < cpu:
            missing = (cpu - 1) * 1769 * MB // MICRO + 1
            size = max(ceil_to(missing, step), size + (0 if missing > size else step))
    if size > high:
        raise LookupError
    share = size * MICRO // (1769 * MB)
    return (share if cpu is None else max(share, cpu)), size


def execution(row: dict[str, Any]) -> int:
    if row["execution"] is None:
        raise LookupError
    return int(row["execution"])


def turnaround(row: dict[str, Any]) -> int:
    if row["start"] in ("cold", "restored") and row["initialization"] is None:
        raise LookupError
    return execution(row) + (row["initialization"] or 0)


def cpu_time(row: dict[str, Any]) -> int:
    if row["cpu_user"] is None and row["cpu_system"] is None:
        raise LookupError
    return (row["cpu_user"] or 0) + (row["cpu_system"] or 0)


def known(value: int | None) -> int:
    if value is None:
        raise LookupError
    return value


def aws(row: dict[str, Any], price: str) -> Price:
    time = ceil_to(turnaround(row), MS)
    memory = known(row["allocated_memory"])
    cpu, size = lambda_size(row["allocated_cpu"], memory, MB, 128 * MB, 10240 * MB)
    return _priced(cpu, size, time, "0", price, "0.0000002")


def vercel(row: dict[str, Any]) -> Price:
    time = execution(row)
    memory = known(row["allocated_memory"])
    cpu, size = lambda_size(row["allocated_cpu"], memory, MB, 128 * MB, 3009 * MB)
    return _priced(cpu, size, time, "0", "0.00005", "0.0000006")


def slim(row: dict[str, Any]) -> Price:
    time = execution(row)
    memory = known(row["allocated_memory"])
    cpu, size = lambda_size(row["allocated_cpu"], memory, 1, 0, 1 << 60)
    return _priced(cpu, size, time, "0.000024", "0.0000025", "0")


def sim(row: dict[str, Any]) -> Price:
    cpu, memory = known(row["allocated_cpu"]), known(row["allocated_memory"])
    return _priced(cpu, memory, execution(row), "0.000024", "0.0000025", "0")


def spfu(row: dict[str, Any]) -> Price:
    vcpu = cpu_time(row) * MICRO
    memory = known(row["memory_avg"]) * execution(row)
    cost = Fraction("0.000024") * vcpu / (MICRO * S) + Fraction("0.0000025") * memory / (GB * S)
    return Price(vcpu, memory, cost)


def google(row: dict[str, Any]) -> Price:
    time = ceil_to(turnaround(row), 100 * MS)
    memory = max(ceil_to(known(row["allocated_memory"]), MB), 128 * MB)
    if memory > 32 * GB:
        raise LookupError
    cpu = row["allocated_cpu"]
    if cpu is None:
        table = {128: 83, 256: 167, 512: 333, 1024: 583, 4096: 1000, 8192: 2000, 16384: 4000}
        table |= {24576: 6000, 32768: 8000}
        size = next(1000 * share for bound, share in table.items() if memory <= bound * MB)
        return _priced(size, memory, time, "0.000024", "0.0000025", "0.0000004")
    least = 0
    for above, share in ((512, 500), (1024, 1000), (4096, 2000), (8192, 4000), (16384, 6000)):
        least = 1000 * share if memory > above * MB else least
    least = 8 * MICRO if memory > 24 * GB else least
    cpu = max(cpu, least)
    if cpu <= MICRO:
        cpu = max(ceil_to(cpu, 10_000), 80_000)
    else:
        whole = [size * MICRO for size in (2, 4, 6, 8) if size * MICRO >= cpu]
        if not whole:
            raise LookupError
        cpu = whole[0]
    return _priced(cpu, memory, time, "0.000024", "0.0000025", "0.0000004")


def azure_consumption(row: dict[str, Any]) -> Price:
    time = max(ceil_to(execution(row), MS), 100 * MS)
    used = known(row["memory_avg"])
    memory = min(max(ceil_to(used, 128 * MB), 128 * MB), 1536 * MB)
    return _priced(MICRO, memory, time, "0", "0.000016", "0.0000002")


def azure_flex(row: dict[str, Any]) -> Price:
    time = max(ceil_to(execution(row), 100 * MS), S)
    cpu, memory = row["allocated_cpu"], known(row["allocated_memory"])
    for size in (2048, 4096):
        share = size // 2048 * MICRO
        if memory <= size * MB and (cpu is None or cpu <= share):
            return _priced(share, size * MB, time, "0", "0.000026", "0.0000004")
    raise LookupError


def first_pair(row: dict[str, Any], pairs: list[tuple[int, int]]) -> tuple[int, int]:
    cpu, memory = row["allocated_cpu"], known(row["allocated_memory"])
    for milli, mb in pairs:
        if memory <= mb * MB and (cpu is None or cpu <= milli * 1000):
            return milli * 1000, mb * MB
    raise LookupError


def ibm(row: dict[str, Any]) -> Price:
    time = ceil_to(turnaround(row), 100 * MS)
    cpu, memory = first_pair(row, [(250, 1024), (500, 2048), (1000, 4096)])
    return _priced(cpu, memory, time, "0.00003431", "0.00000356", "0.000000538")


HUAWEI_MB = (128, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 8192)


def huawei(row: dict[str, Any]) -> Price:
    pairs = [(200 + 100 * mb // 128, mb) for mb in (*HUAWEI_MB, 10240, 16384, 32768)]
    cpu, memory = first_pair(row, pairs)
    return _priced(cpu, memory, ceil_to(execution(row), MS), "0", "0.00001667", "0.0000002")


def alibaba(row: dict[str, Any]) -> Price:
    wanted_cpu, wanted = known(row["allocated_cpu"]), known(row["allocated_memory"])
    best: tuple[int, int] | None = None
    # Search: the smallest vCPU in steps of 0.05 that leaves a memory from 1 to 4 GB per vCPU.
    for cpu in range(50_000, 16 * MICRO + 1, 50_000):
        if cpu < wanted_cpu:
            continue
        low = max(wanted, 128 * MB, -(-cpu * GB // MICRO))
        memory = ceil_to(low, 64 * MB)
        if memory * MICRO <= 4 * GB * cpu and memory <= 32 * GB:
            best = cpu, memory
            break
    if best is None:
        raise LookupError
    time = ceil_to(execution(row), MS)
    return _priced(*best, time, "0.00002", "0.000003", "0.00000015")


def oracle(row: dict[str, Any]) -> Price:
    memory = known(row["allocated_memory"])
    sizes = [mb * MB for mb in (128, 256, 512, 1024, 2048, 3072) if memory <= mb * MB]
    if not sizes:
        raise LookupError
    cpu, time = row["allocated_cpu"], execution(row)
    return _priced(cpu, sizes[0], time, "0", "0.00001417", "0.0000002")


def cloudflare(row: dict[str, Any]) -> Price:
    execution(row)
    vcpu = ceil_to(cpu_time(row), MS) * MICRO
    return Price(vcpu, 0, Fraction("0.00002") * vcpu / (MICRO * S) + Fraction("0.0000003"))


PLATFORMS = {
    "alibaba-fc": alibaba,
    "aws-lambda-arm": lambda row: aws(row, "0.0000133334"),
    "aws-lambda-x86": lambda row: aws(row, "0.0000166667"),
    "azure-consumption": azure_consumption,
    "azure-flex": azure_flex,
    "cloudflare-workers": cloudflare,
    "gcp-run-request": google,
    "huawei-functiongraph": huawei,
    "ibm-code-engine": ibm,
    "oracle-functions": oracle,
    "sim": sim,
    "slim": slim,
    "spfu": spfu,
    "vercel-functions": vercel,
}


def price(tariff: str, row: dict[str, Any]) -> Price | None:
    """The bill of one row, or None if it is not billed or cannot be priced."""
    if row["outcome"] in ("throttled", "preempted"):
        return None
    if any(isinstance(value, int) and value < 0 for value in row.values()):
        return None
    try:
        return PLATFORMS[tariff](row)
    except LookupError:
        return None
