"""Traces the branches of functions into predictors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa

from uncia import record
from uncia.errors import RunFailedError
from uncia.locality import tools
from uncia.locality.targets import Target
from uncia.locality.work import Work

STATES: Final = ("kept", "cleared", "shared")
"""What predictors had learned before a part, in the order of the predictors' program."""

INTERVAL: Final = 1_000_000
"""Instructions between two rows."""

_CPU: Final = "max"
"""The processor that QEMU shows: all that it can, so that programs take the code that they take
on today's machines."""


def trace(
    targets: Sequence[Target], work: Work, *, invocations: int, interval: int = INTERVAL
) -> pa.Table:
    """Run functions under QEMU, all at once, and their branches through every predictor.

    Functions take turns by whole invocations where they share a predictor; what each has alone is
    the same whatever runs beside it.

    Args:
        targets: the functions.
        work: where their processes run.
        invocations: of each, after its start.
        interval: instructions between two rows of a part.

    Returns:
        Rows of the table ``locality``, by function in the order of its instructions.

    Raises:
        UnciaError: QEMU or a compiler is missing, or a function failed.
    """
    tools.require_architecture()
    qemu = tools.QEMU.find()
    tracer, program = tools.tracer(), tools.predict()
    models = tools.models(program)
    counts: list[list[int]] = []
    with ExitStack() as closing:
        pipes = [os.pipe() for _ in targets]
        # A descriptor that this process kept open would keep a trace from ending.
        for descriptor in (each for pipe in pipes for each in pipe):
            closing.callback(os.close, descriptor)
        reads = [read for read, _ in pipes]
        predict = work.start(
            [str(program), str(interval), *map(str, reads)],
            descriptors=reads,
        )
        conversations = []
        for target, (_, write) in zip(targets, pipes, strict=True):
            plugin = f"{tracer},trace={write}"
            command = [str(qemu), "-cpu", _CPU, "-plugin", plugin, *target.command]
            conversations.append(work.invoke(target, command, invocations, [write]))
        closing.close()

        def read() -> None:
            assert predict.stdout is not None, "it is a pipe"
            counts.extend([int(value) for value in line.split()] for line in predict.stdout)
            if predict.wait() != 0:
                raise RunFailedError("the program of the predictors ended early")

        work.converse_all(conversations, read)
    # By function, predictor and state, each in the order of its instructions.
    counts.sort(key=lambda values: values[:3])
    rows = [row for values in counts for row in _rows(values, targets, models, invocations)]
    names = list(rows[0]) if rows else []
    return record.conform(pa.table({it: [row[it] for row in rows] for it in names}), "locality")


def _rows(
    values: Sequence[int],
    targets: Sequence[Target],
    models: Sequence[tuple[str, int]],
    invocations: int,
) -> Iterator[dict[str, Any]]:
    """The row of a line of the predictors' program; none after the last invocation."""
    number, model, state, part, until, instructions, repetitions, branches, mispredicted = values
    if part > invocations:
        return  # the process ends, which a platform's do not
    name, size = models[model]
    yield {
        "function": targets[number].label,
        "structure": "branch_predictor",
        "model": name,
        "bytes": size,
        "simulated": True,
        "state": STATES[state],
        "sharers": len(targets) if STATES[state] == "shared" else 1,
        "part": part,
        "until": until,
        "instructions": instructions,
        "repetitions": repetitions,
        "accesses": branches,
        "misses": mispredicted,
    }
