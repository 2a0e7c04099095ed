"""Sizes that a person declares for functions, against those that their answers say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from uncia.stats import columns
from uncia.units import format_cpu, format_size

# People round a share of a CPU (0.29 vCPU); memory they know to the byte.
_CPU_TOLERANCE = 0.01


@dataclass(frozen=True)
class Declared:
    """The sizes that a person declares for a function: bytes, micro-vCPU; None: not declared."""

    function: str
    memory: int | None
    cpu: int | None


def contradictions(rows: pa.Table, functions: Iterable[Declared]) -> list[str]:
    """Return a sentence for each function whose answers say other sizes than were declared.

    Rows keep what the answers say.

    Args:
        rows: invocations, with their allocations.
        functions: what was declared; of a function with several, each row may have any.
    """
    declared: dict[str, dict[str, set[int]]] = {}
    for item in functions:
        sizes = declared.setdefault(item.function, {})
        for name, size in (("allocated_memory", item.memory), ("allocated_cpu", item.cpu)):
            if size is not None:
                sizes.setdefault(name, set()).add(size)
    sentences = []
    for function, sizes in declared.items():
        part = rows.filter(columns.is_word(rows, "function", function))
        for name, allowed in sizes.items():
            is_memory = name == "allocated_memory"
            text = format_size if is_memory else format_cpu
            values, counts = np.unique(
                columns.measured(columns.integers(part, name)), return_counts=True
            )
            tolerance = 0.0 if is_memory else _CPU_TOLERANCE
            other = [
                (int(value), int(count))
                for value, count in zip(values, counts, strict=True)
                if not any(abs(int(value) - size) <= tolerance * size for size in allowed)
            ]
            if other:
                key = "memory" if is_memory else "vcpu"
                answered = ", ".join(f"{text(value)} ({count:,} rows)" for value, count in other)
                given = " or ".join(text(size) for size in sorted(allowed))
                sentences.append(
                    f"{function}: its answers say {answered}, but {key} is given as {given};"
                    f" the rows keep what the answers say, so leave {key} out"
                )
    return sentences
