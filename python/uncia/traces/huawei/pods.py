"""What Huawei's trace of 2025 says by the name of a pod: pool and allocation; and its functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from uncia.traces.cells import Bools, Checks, Ints
from uncia.units import MIB

MICRO_PER_MILLI: Final = 1000

MAX_CORES: Final = 1000
MAX_MEMORY: Final = 1 << 42
"""Allocations that are believed, in vCPU and bytes: those that bills believe."""

_CPU: Final = "[0-9]{1,15}"
_MEMORY: Final = "[0-9]{1,12}"
_POD: Final = rf"^(?P<pool>.+-(?P<cpu>{_CPU})-(?P<memory>{_MEMORY}))-.+$"


@dataclass(frozen=True)
class Pods:
    """The pods of a block, each once.

    Attributes:
        names: the pods; shape (pods,).
        codes: the pod of each row, an index into ``names``; null where the trace has none.
        pool: ``pool22-300-128``, null where the name holds no flavour; shape (pods,).
        cpu: allocated micro-vCPU, null as ``pool``.
        memory: allocated bytes, null as ``pool``.
    """

    names: pa.StringArray
    codes: pa.Int32Array
    pool: pa.StringArray
    cpu: pa.Int64Array
    memory: pa.Int64Array

    @classmethod
    def of(cls, texts: pa.StringArray, there: Bools) -> Pods:
        """Read them from the cells of a block."""
        known = texts if there.all() else pc.if_else(pa.array(there), texts, None)
        encoded = known.dictionary_encode()
        names = encoded.dictionary
        pool, cpu, memory = _flavours(names)
        real = pc.and_(pc.greater(cpu, 0), pc.greater(memory, 0))
        return cls(
            names=names,
            codes=encoded.indices,
            pool=pc.if_else(real, pool, None),
            cpu=pc.if_else(real, pc.multiply(cpu, MICRO_PER_MILLI), None),
            memory=pc.if_else(real, pc.multiply(memory, MIB), None),
        )

    def each(self, values: pa.Array) -> pa.Array:
        """A value of the pods for each row."""
        return values.take(self.codes)

    def without_flavour(self) -> Bools:
        """Where a row's pod names no flavour, or there is none."""
        return _null(self.each(self.cpu))

    def instances(self) -> pa.DictionaryArray:
        """The column ``instance``."""
        return pa.DictionaryArray.from_arrays(self.codes, self.names)

    def require(self, checks: Checks, most: int, too_much: str) -> None:
        """Mark rows whose pod is allocated more than can be.

        Args:
            checks: of the block.
            most: the most memory, bytes.
            too_much: the reason where it is exceeded.
        """
        limits = (
            (self.memory, min(most, MAX_MEMORY), too_much if most < MAX_MEMORY else ""),
            (self.cpu, MAX_CORES * 10**6, f"allocation above {MAX_CORES} vCPU"),
        )
        for values, limit, why in limits:
            over = pc.greater(values, limit).fill_null(False)
            if pc.any(over).as_py():
                bad = self.each(over).fill_null(False).to_numpy(zero_copy_only=False)
                why = why or f"memory above {MAX_MEMORY >> 40} TiB"
                checks.require("podID", ~bad.astype(bool), f"a flavour to believe: {why}", why)


def functions(function: Ints, user: Ints, pods: Pods) -> pa.DictionaryArray:
    """``funcName---userID---pool`` of each row; without the pool where the pod does not name it."""
    pool = pods.pool.dictionary_encode()
    numbers = [pa.array(function).dictionary_encode(), pa.array(user).dictionary_encode()]
    pools = pods.each(pool.indices).fill_null(len(pool.dictionary)).cast(pa.int64())
    code = pools.to_numpy(zero_copy_only=False)
    for number in numbers:
        code = code * len(number.dictionary) + number.indices.to_numpy(zero_copy_only=False)
    encoded = pa.array(code).dictionary_encode()
    rest = encoded.dictionary.to_numpy(zero_copy_only=False)
    texts: list[pa.Array] = []
    for number in reversed(numbers):
        texts.insert(0, number.dictionary.take(pa.array(rest % len(number.dictionary))))
        rest = rest // len(number.dictionary)
    ids = [text.cast(pa.utf8()) for text in texts]
    named = pa.concat_arrays([pool.dictionary, pa.nulls(1, pa.utf8())]).take(pa.array(rest))
    names = pc.coalesce(
        pc.binary_join_element_wise(*ids, named, "---"), pc.binary_join_element_wise(*ids, "---")
    )
    return pa.DictionaryArray.from_arrays(encoded.indices, names)


def _flavours(names: pa.StringArray) -> tuple[pa.StringArray, pa.Int64Array, pa.Int64Array]:
    """Pool, millicores and megabytes, null where a name does not hold them.

    Most names have three hyphens, and to split those is ten times as quick as to match them.
    """
    four = pc.equal(pc.count_substring(names, "-"), 3)
    parts = pc.split_pattern(pc.if_else(four, names, "-0-0-"), "-")
    pool, cpu, memory, rest = (pc.list_element(parts, index) for index in range(4))
    simple = pc.and_(
        pc.and_(pc.not_equal(pool, ""), pc.not_equal(rest, "")),
        pc.and_(
            pc.match_substring_regex(cpu, rf"^{_CPU}$"),
            pc.match_substring_regex(memory, rf"^{_MEMORY}$"),
        ),
    )
    flavours = (
        pc.binary_join_element_wise(pool, cpu, memory, "-"),
        pc.if_else(simple, cpu, None).cast(pa.int64()),
        pc.if_else(simple, memory, None).cast(pa.int64()),
    )
    if pc.all(simple, min_count=0).as_py():
        return flavours
    odd = pc.invert(simple)
    matched = _matched(names.filter(odd))
    return tuple(
        pc.replace_with_mask(quick, odd, slow)
        for quick, slow in zip(flavours, matched, strict=True)
    )


def _matched(names: pa.StringArray) -> tuple[pa.StringArray, pa.Int64Array, pa.Int64Array]:
    flavour = pc.extract_regex(names, _POD)
    cpu, memory = (pc.struct_field(flavour, name).cast(pa.int64()) for name in ("cpu", "memory"))
    return pc.struct_field(flavour, "pool"), cpu, memory


def _null(array: pa.Array) -> Bools:
    nulls: Bools = pc.is_null(array).to_numpy(zero_copy_only=False).astype(bool)
    return nulls


def optional(numbers: Ints, there: Bools) -> pa.Array:
    """Numbers where there are any, else null."""
    return pa.array(numbers, pa.int64(), mask=None if there.all() else ~there)
