"""Blocks of synthetic requests of Huawei's trace, as integers in the units of its files.

A block is :data:`BLOCK` rows of a region, drawn from a seed of its own, so that a block can be made
without those before it, and a trace of more rows begins with the rows of a smaller one. Its rows
are in no order of time, and spread over the day.

A block has its own pods. Most live all day; the *born* ones are started in it, and their first
request is the one that caused the start, except where another pod's request did. Every pod runs one
function. The pods of all blocks and regions are laid out alike, which makes a few of them have the
same identifier in every region, as identifiers are unique within one only.
"""

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from uncia.traces.synth.base import Order, generator
from uncia.traces.synth.huawei2025 import model
from uncia.traces.synth.huawei2025.model import Floats
from uncia.traces.synth.text import Ints

BLOCK: Final = 1 << 17
REGIONS: Final = tuple(model.REGION_ROWS)

USED, ZERO, NO_POD, NO_USAGE, LARGE = range(5)
KINDS: Final = ("used", "zero_cpu", "nan_pod", "nan_usage", "memory_above_10240")

# Chosen: pods of a block that live all day, and that serve requests above 10,240 MB.
_RESIDENT: Final = 384
_LARGE: Final = 4

# Cold starts of a block: those whose pod serves requests in it, of which some are of earlier days.
_MATCHED: Final = round(BLOCK * model.MATCHED_COLD_STARTS / model.ALL_ROWS)
_EARLIER: Final = _MATCHED // 8
_BORN: Final = _MATCHED - _EARLIER
_ELSEWHERE: Final = round(BLOCK * model.COLD_STARTS / model.ALL_ROWS) - _MATCHED
_MAX_REQUESTS: Final = 1800  # of a born pod; chosen so that 42.1% of starts outweigh what follows

_DAY_MS: Final = 86_400_000
_DAY: Final = 30
_SHARED: Final = 101  # every so many pods have an identifier that other regions use too
_PAGES: Final = 256  # of 4,096 bytes in a megabyte: memory is used in whole ones
_MIN_CPU: Final = 15  # micro-cores, so that the CPU time of the shortest request is above 0 ns
_ID_MASK: Final = (1 << 48) - 1


@dataclass(frozen=True)
class Layout:
    """The pods of a block, of which all blocks have the same but for the identifiers.

    Arrays of shape (pods,): cell (flavour x class), row of the execution table, probit offsets of
    CPU and memory, millicores, megabytes, function. ``slots`` maps 16 random bits to a resident;
    of each cell, ``residents`` are its pods from and to, and ``first_functions`` one function.
    """

    execution: Ints
    cpu_offset: Floats
    memory_offset: Floats
    millicores: Ints
    megabytes: Ints
    function: Ints
    slots: Ints
    first_functions: Ints
    residents: list[tuple[int, int]]
    cell_weights: npt.NDArray[np.float64]

    @property
    def functions(self) -> int:
        """Functions of a region."""
        return int(self.function.max()) + 1


@dataclass(frozen=True)
class Block:
    """Rows of a region, all arrays of shape (rows,).

    ``kind`` indexes :data:`KINDS`; ``pod`` indexes ``pods``, also of rows without a pod, whose
    function it tells; times are ms since day 0 (``ended``) and us (``execution``, ``cold``: start
    of the pod that the row caused and was served by, else -1); usage is micro-cores and millionths
    of a megabyte. ``starts`` are the cold starts that belong to the block.
    """

    region: str
    number: int
    kind: Ints
    pod: Ints
    pods: list[str]
    pools: list[str]
    names: list[tuple[int, int]]
    identifier: npt.NDArray[np.uint64]
    ended: Ints
    execution: Ints
    cold: Ints
    cpu: Ints
    memory: Ints
    body: Ints
    starts: "Starts"


@dataclass(frozen=True)
class Starts:
    """Cold starts: costs in ns but ``total`` in us, ``time`` in ms; ``row`` is the row they need.

    ``pods`` and ``names`` (function, user) are lists as long as the arrays.
    """

    row: Ints
    day: Ints
    time: Ints
    identifier: npt.NDArray[np.uint64]
    total: Ints
    allocation: Ints
    code: Ints
    dependency: Ints
    pods: list[str]
    names: list[tuple[int, int]]


def rows_by_region(rows: int) -> dict[str, int]:
    """``rows`` shared out in the published proportions; more rows never make a region smaller.

    By highest averages (odd divisors), which has that property.
    """
    shares = {name: count / model.ALL_ROWS for name, count in model.REGION_ROWS.items()}
    given = {name: max(0, int(rows * share) - 2) for name, share in shares.items()}
    while sum(given.values()) < rows:
        given[max(shares, key=lambda name: shares[name] / (2 * given[name] + 1))] += 1
    return given


def identifiers(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Numbers below 2^48 scattered over that range, no two alike."""
    mask, shift = np.uint64(_ID_MASK), np.uint64(24)
    x = ((numbers ^ np.uint64(0x5851F42D4C95)) * np.uint64(0x9E3779B97F4B)) & mask
    x ^= x >> shift
    x = (x * np.uint64(0xD6E8FEB86659)) & mask
    return x ^ (x >> shift)


@cache
def layout() -> Layout:
    """How the pods of every block are laid out."""
    weights = np.array(model.WEIGHTS)
    weights = (weights / weights.sum()).ravel()
    roots = np.sqrt(weights)
    counts = np.maximum(1, (_RESIDENT * roots / roots.sum()).astype(np.int64))
    cells = np.repeat(np.arange(len(weights)), counts)
    rank = np.arange(len(cells)) - np.repeat(np.cumsum(counts) - counts, counts)
    skew = (rank + 1.0) ** -0.8  # chosen: some pods of a cell serve more than others
    per_cell = np.bincount(cells, weights=skew)
    share = weights[cells] * skew / per_cell[cells]
    edges = np.rint(np.cumsum(share) * 65536).astype(np.int64)
    slots = np.repeat(np.arange(len(cells)), np.diff(edges, prepend=0))
    first = np.flatnonzero(rank == 0)
    function = np.repeat(first, counts) + rank // 2
    function = np.unique(function, return_inverse=True)[1]
    return Layout(
        *_properties(cells),
        function=function.astype(np.int64),
        slots=slots.astype(np.int64),
        first_functions=function[first].astype(np.int64),
        residents=list(zip(first.tolist(), (first + counts).tolist(), strict=True)),
        cell_weights=weights,
    )


def _properties(
    cells: Ints,
) -> tuple[Ints, Floats, Floats, Ints, Ints]:
    flavour, kind = np.divmod(cells, len(model.CLASSES))
    millicores, megabytes = np.array(model.FLAVOURS).T
    size = np.log(millicores / 1000).round(9)[flavour]
    return (
        kind,
        (np.array(model.CPU)[kind] + model.CPU_BY_SIZE * size).astype(np.float32),
        (np.array(model.MEMORY)[kind] + model.MEMORY_BY_SIZE * size).astype(np.float32),
        millicores[flavour],
        megabytes[flavour],
    )


@cache
def _executions() -> npt.NDArray[np.int32]:
    return model.execution_tables()


@dataclass(frozen=True)
class _Pods:
    """The pods of one block: residents, born ones, large ones."""

    execution: Ints
    cpu_offset: Floats
    memory_offset: Floats
    millicores: Ints
    megabytes: Ints
    function: Ints
    born_cells: Ints
    first_born: int
    first_large: int


def _pods(rng: np.random.Generator) -> _Pods:
    plan = layout()
    cells = rng.choice(len(plan.cell_weights), _BORN, p=plan.cell_weights)
    born = _properties(cells)
    large = np.array(model.LARGE)[np.arange(_LARGE) % len(model.LARGE)]
    ones = np.ones(_LARGE, dtype=np.float32)
    residents = len(plan.function)
    return _Pods(
        np.concatenate([plan.execution, born[0], ones.astype(np.int64)]),
        np.concatenate([plan.cpu_offset, born[1], model.LARGE_CPU * ones]),
        np.concatenate([plan.memory_offset, born[2], model.LARGE_MEMORY * ones]),
        np.concatenate([plan.millicores, born[3], large[:, 0]]),
        np.concatenate([plan.megabytes, born[4], large[:, 1]]),
        np.concatenate(
            [plan.function, plan.first_functions[cells], plan.functions + np.arange(_LARGE) % 2]
        ),
        cells,
        residents,
        residents + _BORN,
    )


def block(seed: int, region: str, number: int) -> Block:
    """Block ``number`` of a region, whole."""
    region_index = REGIONS.index(region)
    rng = generator(seed, region_index, number)
    pods = _pods(rng)
    pod = layout().slots.take(rng.integers(0, 65536, BLOCK, dtype=np.uint16))
    kind = _kinds(rng, region)
    z = rng.standard_normal((3, BLOCK), dtype=np.float32)
    ended = _times(rng)
    body = rng.integers(0, 4096, BLOCK, dtype=np.uint16).astype(np.int64)  # chosen: up to 4 KB
    born, requests = _born_rows(rng, pods, pod)
    large = kind == LARGE
    pod[large] = pods.first_large + (body[large] % _LARGE)
    execution, cpu, memory = _usage(z, kind, pod, pods)
    first = np.uint64((region_index << 44) + number * BLOCK)
    identifier = identifiers(first + np.arange(BLOCK, dtype=np.uint64))
    texts, pools = _texts(pods, region_index, number)
    names = _names(pods.function, region_index)
    cold = np.full(BLOCK, -1, dtype=np.int64)
    starts = _starts(
        rng, region_index, number, pods, (born, requests),
        (pod, ended, execution, cold, kind, identifier), (texts, names),
    )  # fmt: skip
    return Block(
        region, number, kind, pod, texts, pools, names, identifier, ended, execution, cold, cpu,
        memory, body, starts,
    )  # fmt: skip


def _kinds(rng: np.random.Generator, region: str) -> Ints:
    rows = model.REGION_ROWS[region]
    nan, large = model.NAN_ROWS[region] / rows, model.LARGE_ROWS.get(region, 0) / rows
    usage = model.NAN_USAGE_ROWS / sum(model.NAN_ROWS.values())
    kept = 1 - nan - large
    used = model.USED_ROWS / (model.USED_ROWS + model.ZERO_ROWS)
    shares = (kept * used, kept * (1 - used), nan * (1 - usage), nan * usage)
    edges = np.rint(np.cumsum(shares) * 2**32).astype(np.uint64)
    draw = rng.integers(0, 2**32, BLOCK, dtype=np.uint32)
    kind = np.zeros(BLOCK, dtype=np.int64)
    for edge in edges:
        if edge < 2**32:
            kind += draw >= np.uint32(edge)
    return kind


def _times(rng: np.random.Generator) -> Ints:
    """Times of day in ms: chosen, a day whose quietest hour has a third of its busiest's."""
    u = rng.integers(0, _DAY_MS, BLOCK, dtype=np.uint32).astype(np.int64)
    grid = np.arange(1025) / 1024
    curve = np.rint(_DAY_MS * (grid - 0.5 / (2 * np.pi) * np.sin(2 * np.pi * grid))).astype(
        np.int64
    )
    step = _DAY_MS // 1024
    at, rest = np.divmod(u, step)
    at = np.minimum(at, 1023)
    rest = np.minimum(rest, step - 1)
    time = curve[at] + (curve[at + 1] - curve[at]) * rest // step
    since_day_0: Ints = time + _DAY * _DAY_MS
    return since_day_0


def _usage(z: Floats, kind: Ints, pod: Ints, pods: _Pods) -> tuple[Ints, Ints, Ints]:
    """Execution in us, CPU in micro-cores, memory in millionths of a megabyte."""
    table = _executions()
    _, by_cpu, by_memory = model.cholesky()
    z_cpu, z_memory = by_cpu[0] * z[0], by_memory[0] * z[0]
    z_cpu += by_cpu[1] * z[1]
    z_memory += by_memory[1] * z[1]
    z_memory += by_memory[2] * z[2]
    for latent in (z[0], z_cpu, z_memory):
        np.clip(latent, -model.CLIP, model.CLIP, out=latent)
    idle = (kind == ZERO) | (kind == NO_POD)
    work = np.where(idle, len(model.CLASSES), pods.execution.take(pod))
    execution = table.ravel().take(work * table.shape[1] + model.latent(z[0])).astype(np.int64)

    share = model.probit(pods.cpu_offset.take(pod) + model.CPU_SPREAD * z_cpu)
    cpu = np.rint(share * (1000 * pods.millicores).take(pod)).astype(np.int64)
    cpu = np.maximum(cpu, _MIN_CPU)
    cpu[idle] = 0
    share = model.probit(pods.memory_offset.take(pod) + model.MEMORY_SPREAD * z_memory)
    pages = np.rint(share * (_PAGES * pods.megabytes).take(pod)).astype(np.int64)
    memory = (np.maximum(pages, 1) * (10**6 // 64) + 2) // 4
    memory[kind == NO_POD] = 0
    return execution, cpu, memory


def _born_rows(rng: np.random.Generator, pods: _Pods, pod: Ints) -> tuple[Ints, Ints]:
    """Give rows to the born pods; returns the rows, and how many each pod has.

    As many as between 1 and :data:`_MAX_REQUESTS`, each power of ten as likely: chosen. A pod gets
    rows that residents of its own cell would have served, so that the cells keep their shares.
    """
    wanted = np.floor(_MAX_REQUESTS ** rng.random(_BORN)).astype(np.int64).tolist()
    by_pod = np.argsort(pod.astype(np.uint16), kind="stable")
    ends = np.cumsum(np.bincount(pod, minlength=pods.first_born))
    rows, requests = [], np.zeros(_BORN, dtype=np.int64)
    for cell in np.unique(pods.born_cells).tolist():
        low, high = layout().residents[cell]
        mine = rng.permutation(by_pod[ends[low - 1] if low else 0 : ends[high - 1]])
        for i in np.flatnonzero(pods.born_cells == cell).tolist():
            # At most half of what is left, so that the residents of a rare cell serve some too.
            some, mine = np.split(mine, [min(wanted[i], len(mine) // 2)])
            requests[i] = len(some)
            rows.append((i, some))
    index = np.concatenate([some for _, some in sorted(rows, key=lambda item: item[0])])
    pod[index] = np.repeat(pods.first_born + np.arange(_BORN), requests)
    return index, requests


def _texts(pods: _Pods, region: int, number: int) -> tuple[list[str], list[str]]:
    """Identifiers and pools of the pods of a block."""
    pools = [
        f"pool{22 + 2 * (cpu // 300 - 1) % 12}-{cpu}-{memory}"
        for cpu, memory in zip(pods.millicores.tolist(), pods.megabytes.tolist(), strict=True)
    ]
    size = len(pools)
    texts = [
        f"{pool}-{(number * size + i) * 8 + (0 if _is_shared(i, pods) else region + 1):010d}"
        for i, pool in enumerate(pools)
    ]
    return texts, pools


def _is_shared(i: int, pods: _Pods) -> bool:
    return i < pods.first_born and i % _SHARED == 0


def _names(function: Ints, region: int) -> list[tuple[int, int]]:
    """Function and user of each pod; numbers do not repeat across regions."""
    ids = (function + 1 + 1000 * region).tolist()
    return [(number, 1 + number * 37 % 401) for number in ids]


def _starts(
    rng: np.random.Generator,
    region: int,
    number: int,
    pods: _Pods,
    born: tuple[Ints, Ints],
    rows: tuple[Ints, Ints, Ints, Ints, Ints, npt.NDArray[np.uint64]],
    texts: tuple[list[str], list[tuple[int, int]]],
) -> Starts:
    """The cold starts of a block; sets the times of the born pods' rows, and which caused one."""
    pod, ended, execution, cold, kind, identifier = rows
    count = _BORN + _EARLIER + _ELSEWHERE
    total, allocation, code, dependency = _costs(rng, count)
    time = rng.integers(0, _DAY * _DAY_MS, count)
    time[:_BORN] = _DAY * _DAY_MS + rng.integers(0, _DAY_MS * 9 // 10, _BORN)
    row = rng.integers(0, BLOCK, count)
    # The flag of the highest bit sets those apart whose request the tables do not hold.
    spare = np.uint64((1 << 47) + (region << 44) + number * BLOCK)
    caused_by = identifiers(spare + np.arange(count, dtype=np.uint64))

    chosen, requests = born
    there = requests > 0
    first = chosen[np.minimum(np.cumsum(requests) - requests, len(chosen) - 1)]
    _live(rng, born, time[:_BORN], total[:_BORN], ended, execution)
    row[:_BORN][there] = first[there]
    caused_by[:_BORN][there] = identifier[first[there]]
    order = np.arange(_BORN)
    # Chosen: every eighth was started by a request that a resident served at that time.
    other = rng.integers(0, BLOCK, _BORN)
    elsewhere = (order % 8 == 3) & (pod[other] < pods.first_born)
    caused_by[:_BORN][elsewhere] = identifier[other[elsewhere]]
    ended[other[elsewhere]] = (time[:_BORN] - (-execution[other] // 1000))[elsewhere]
    twin = order % 16 == 9  # chosen: started by the request that started the pod before it, too
    caused_by[:_BORN][twin] = caused_by[:_BORN][np.roll(twin, -1)]
    sound = there & ~elsewhere & ~twin & (kind[first] != NO_POD) & (kind[first] != LARGE)
    cold[first[sound]] = total[:_BORN][sound]

    # Pods of earlier days: residents that were started then, and ones that are gone.
    resident = rng.integers(0, pods.first_born, _EARLIER + _ELSEWHERE)
    names = [texts[1][pods.first_born + i] for i in range(_BORN)]
    names += [texts[1][i] for i in resident.tolist()]
    ids = [texts[0][pods.first_born + i] for i in range(_BORN)]
    ids += [texts[0][i] for i in resident[:_EARLIER].tolist()]
    ids += [
        f"{texts[0][i].rpartition('-')[0]}-{5_000_000_000 + (number * count + n) * 8 + region + 1}"
        for n, i in enumerate(resident[_EARLIER:].tolist())
    ]
    order = np.argsort(row, kind="stable")
    return Starts(
        row[order],
        time[order] // _DAY_MS,
        time[order],
        caused_by[order],
        total[order],
        allocation[order],
        code[order],
        dependency[order],
        [ids[i] for i in order.tolist()],
        [names[i] for i in order.tolist()],
    )


def _live(
    rng: np.random.Generator,
    born: tuple[Ints, Ints],
    birth: Ints,
    total: Ints,
    ended: Ints,
    execution: Ints,
) -> None:
    """Set the times of the born pods' requests: the first as soon as the pod is there."""
    rows, requests = born
    left = (_DAY + 1) * _DAY_MS - birth - total // 1000 - 60_000
    life = np.maximum(1, (left * rng.random(_BORN)).astype(np.int64))
    offset = (np.repeat(life, requests) * rng.random(len(rows))).astype(np.int64)
    offset[(np.cumsum(requests) - requests)[requests > 0]] = 0
    ready = birth + -(-total // 1000)
    ended[rows] = np.repeat(ready, requests) + offset - (-execution[rows] // 1000)


def _costs(rng: np.random.Generator, count: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Total in us, then allocation, code and dependencies in ns; the rest is scheduling.

    Chosen: lognormal about the example row of the release's documentation (2.24 s, of which 27 ms,
    45 ms, 454 ms and 1.71 s), and no dependencies in every third start.
    """
    z = np.clip(rng.standard_normal((4, count)), -3, 3)
    factors = (np.exp(np.array([[0.9], [0.8], [0.9], [0.9]]) * z) * 2**20).astype(np.int64)
    means = np.array([[27_161_815], [45_000], [454_000], [1_713_152]])
    allocation, code, dependency, scheduling = (means * factors) >> 20
    code, dependency = code // 1000 * 1_000_000, dependency // 1000 * 1_000_000
    dependency[rng.random(count) < 1 / 3] = 0
    total = (allocation + code + dependency) // 1000 + 1 + scheduling
    return total, allocation, code, dependency


@dataclass(frozen=True)
class Part:
    """Rows of a region that one file holds."""

    order: Order
    region: str
    number: int
    first: int
    rows: int

    def blocks(self) -> list[tuple[int, int, int]]:
        """The blocks that it consists of: number, and the rows of each from and to."""
        last = self.first + self.rows
        return [
            (number, max(self.first - number * BLOCK, 0), min(last - number * BLOCK, BLOCK))
            for number in range(self.first // BLOCK, -(-last // BLOCK))
        ]


def natural(data: Block, rows: slice) -> dict[str, int]:
    """Rows by kind, those without a flaw left out."""
    counts = np.bincount(data.kind[rows], minlength=len(KINDS)).tolist()
    return {name: n for name, n in zip(KINDS, counts, strict=True) if n and name != KINDS[USED]}
