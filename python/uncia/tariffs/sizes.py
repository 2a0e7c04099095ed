"""The sizes that a tariff sells: which vCPU and memory may be chosen, and what ties them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from uncia.forms import Form
from uncia.units import GIB, MIB, MICRO_PER_VCPU, Cpu, Size, format_cpu, format_size

Text = Annotated[str, Field(min_length=1)]

# Forms are strict, and YAML has lists; a tuple keeps a form immutable.
_FROM_LIST: Final = BeforeValidator(
    lambda value: tuple(value) if isinstance(value, list) else value
)


class MemoryKnob(Form):
    """The memory sizes that may be chosen: steps from a minimum to a maximum, or listed values.

    Without a step every size between minimum and maximum may be chosen.
    """

    minimum: Size | None = None
    maximum: Size | None = None
    step: Size | None = None
    values: Annotated[tuple[Size, ...], _FROM_LIST] = ()

    @model_validator(mode="after")
    def _ordered(self) -> MemoryKnob:
        _check_knob(self.minimum, self.maximum, self.step, self.values, format_size)
        return self


class CpuKnob(Form):
    """The CPU allocations that may be chosen; as `MemoryKnob`."""

    minimum: Cpu | None = None
    maximum: Cpu | None = None
    step: Cpu | None = None
    values: Annotated[tuple[Cpu, ...], _FROM_LIST] = ()

    @model_validator(mode="after")
    def _ordered(self) -> CpuKnob:
        _check_knob(self.minimum, self.maximum, self.step, self.values, format_cpu)
        return self


def _check_knob(
    minimum: int | None,
    maximum: int | None,
    step: int | None,
    values: tuple[int, ...],
    text: Callable[[int], str],
) -> None:
    if step == 0:
        raise ValueError("a step must be above zero; leave the key out for none")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise ValueError(f"minimum {text(minimum)} is above maximum {text(maximum)}")
    for name, bound in (("minimum", minimum), ("maximum", maximum)):
        if step is not None and bound is not None and bound % step != 0:
            raise ValueError(f"{name} {text(bound)} is not a whole number of steps of {text(step)}")
    if list(values) != sorted(set(values)):
        raise ValueError("values must rise, each once")
    if values and (minimum is not None or step is not None) and maximum is None:
        raise ValueError("values above the steps need a maximum, where the steps end")
    if values and maximum is not None and values[0] <= maximum:
        raise ValueError(f"values must lie above the steps, which end at {text(maximum)}")


class Observed(Form):
    """No sizes of its own: what was allocated is what is billed."""

    kind: Literal["observed"]
    source: Text
    note: Text | None = None

    @property
    def rule(self) -> str:
        """How an observed allocation becomes a size, in words."""
        return "as allocated"


class MeanRatio(Form):
    """Any memory, any vCPU above the share that follows from it by one ratio for all.

    No platform sells this and no file names it: it is how the cost paper's artifact sizes AWS
    (see `published`). ``vcpu_per_byte`` is in micro-vCPU per byte.
    """

    kind: Literal["mean ratio"] = "mean ratio"
    vcpu_per_byte: Annotated[Fraction, Field(gt=0)]
    source: Text

    @property
    def rule(self) -> str:
        """How an observed allocation becomes a size, in words."""
        per_mb = float(self.vcpu_per_byte * MIB / 1000)
        return (
            "memory and vCPU as allocated, the smaller of the two raised to the ratio of"
            f" {per_mb:.6g} millicores per MB, the mean of the distinct allocations in the table"
        )


class Proportional(Form):
    """One knob, memory; the vCPU share follows from it (``memory_per_vcpu`` gives one vCPU)."""

    kind: Literal["proportional"]
    memory_per_vcpu: Size
    memory: MemoryKnob
    source: Text
    note: Text | None = None

    @field_validator("memory_per_vcpu")
    @classmethod
    def _in_range(cls, value: int) -> int:
        # The fit multiplies it by micro-vCPU in 64 bits; real ratios are below 8 GB.
        if not 1 <= value <= 4 * GIB:
            raise ValueError("must be above zero and at most 4 GB")
        return value

    @field_validator("memory")
    @classmethod
    def _step_in_range(cls, value: MemoryKnob) -> MemoryKnob:
        if value.step is not None and value.step > 64 * GIB:
            raise ValueError("a step is at most 64 GB")
        return value

    @property
    def rule(self) -> str:
        """How an observed allocation becomes a size, in words."""
        return (
            f"smallest memory {_knob_words(self.memory, format_size)} that covers the allocated"
            f" memory and, at {format_size(self.memory_per_vcpu)} per vCPU, the allocated vCPU"
        )


class Fixed(Form):
    """One size for all."""

    kind: Literal["fixed"]
    cpu: Cpu | None
    memory: Size | None
    source: Text
    note: Text | None = None

    @property
    def rule(self) -> str:
        """How an observed allocation becomes a size, in words."""
        parts = [
            "no vCPU share" if self.cpu is None else format_cpu(self.cpu),
            "any memory" if self.memory is None else format_size(self.memory),
        ]
        return f"one size for all: {' and '.join(parts)}"


class Combination(Form):
    """A pair that may be chosen; ``cpu: null`` where the vCPU share is not documented."""

    memory: Size
    cpu: Cpu | None


class Combinations(Form):
    """A list of pairs, from the smallest up; the first that covers the allocation is taken."""

    kind: Literal["combinations"]
    combinations: Annotated[list[Combination], Field(min_length=1)]
    source: Text
    note: Text | None = None

    @field_validator("combinations")
    @classmethod
    def _ordered(cls, value: list[Combination]) -> list[Combination]:
        pairs = [(pair.memory, pair.cpu or 0) for pair in value]
        if pairs != sorted(set(pairs)):
            raise ValueError("combinations must rise by memory, then vCPU, each once")
        if any(pair.cpu is None for pair in value) and any(pair.cpu is not None for pair in value):
            raise ValueError("either all combinations name their vCPU, or none")
        return value

    @property
    def names_cpu(self) -> bool:
        """Whether the vCPU share of each size is documented."""
        return self.combinations[0].cpu is not None

    @property
    def rule(self) -> str:
        """How an observed allocation becomes a size, in words."""
        if not self.names_cpu:
            sizes = ", ".join(format_size(pair.memory) for pair in self.combinations)
            return f"smallest memory of {sizes} that covers the allocated memory; vCPU as allocated"
        sizes = ", ".join(
            f"{format_cpu(pair.cpu or 0)}/{format_size(pair.memory)}" for pair in self.combinations
        )
        return f"first of {sizes} that covers the allocated memory and vCPU"


class CpuAbove(Form):
    """The least vCPU that a memory size above a bound needs."""

    memory_above: Size
    cpu: Cpu


class CpuUpTo(Form):
    """The vCPU that a memory size up to a bound has if none is chosen."""

    memory_up_to: Size
    cpu: Cpu


class MemoryRange(Form):
    """Bounds of the memory per vCPU (1 GB to 4 GB: vCPU to GB from 1:1 to 1:4)."""

    minimum: Size
    maximum: Size

    @model_validator(mode="after")
    def _ordered(self) -> MemoryRange:
        if not 1 <= self.minimum <= self.maximum <= 4 * GIB:
            raise ValueError("minimum must be above zero, maximum not below it and at most 4 GB")
        return self


class Independent(Form):
    """Two knobs, CPU and memory, with what ties them.

    ``cpu_minimum``: the least vCPU of a memory size. ``cpu_default``: the vCPU where none was
    observed, as it is. ``memory_per_vcpu``: the bounds of their ratio.
    """

    kind: Literal["independent"]
    cpu: CpuKnob
    memory: MemoryKnob
    cpu_minimum: Annotated[tuple[CpuAbove, ...], _FROM_LIST] = ()
    cpu_default: Annotated[tuple[CpuUpTo, ...], _FROM_LIST] = ()
    memory_per_vcpu: MemoryRange | None = None
    source: Text
    note: Text | None = None

    @field_validator("cpu_minimum")
    @classmethod
    def _minimum_rises(cls, value: tuple[CpuAbove, ...]) -> tuple[CpuAbove, ...]:
        _check_rises([(step.memory_above, step.cpu) for step in value])
        return value

    @field_validator("cpu_default")
    @classmethod
    def _default_rises(cls, value: tuple[CpuUpTo, ...]) -> tuple[CpuUpTo, ...]:
        _check_rises([(step.memory_up_to, step.cpu) for step in value])
        return value

    @model_validator(mode="after")
    def _ratio_can_be_met(self) -> Independent:
        bounds = self.memory_per_vcpu
        if bounds is None:
            return self
        if self.cpu_default:
            raise ValueError("cpu_default and memory_per_vcpu exclude each other")
        # Raising memory to its next step must not overshoot the ratio's upper bound.
        smallest = self.cpu.minimum or self.cpu.step
        step = self.memory.step or 1
        if smallest is None or self.memory.values or self.cpu.values:
            raise ValueError("memory_per_vcpu needs knobs with steps and a smallest vCPU")
        if (bounds.maximum - bounds.minimum) * smallest < step * MICRO_PER_VCPU:
            raise ValueError(
                "memory_per_vcpu leaves no size at the smallest vCPU: the range is narrower than"
                " a memory step"
            )
        return self

    @property
    def rule(self) -> str:
        """How an observed allocation becomes a size, in words."""
        words = (
            f"smallest memory {_knob_words(self.memory, format_size)} and smallest vCPU"
            f" {_knob_words(self.cpu, format_cpu)} that cover what was allocated"
        )
        if self.cpu_minimum:
            words += ", at least the vCPU that the memory needs"
        if self.memory_per_vcpu is not None:
            low, high = self.memory_per_vcpu.minimum, self.memory_per_vcpu.maximum
            words += f", {format_size(low)} to {format_size(high)} per vCPU"
        return words


def _check_rises(pairs: list[tuple[int, int]]) -> None:
    if any(
        later[0] <= earlier[0] or later[1] <= earlier[1]
        for earlier, later in itertools.pairwise(pairs)
    ):
        raise ValueError("memory and vCPU must rise from step to step")


def _knob_words(knob: MemoryKnob | CpuKnob, text: Callable[[int], str]) -> str:
    words = ""
    if knob.step is not None:
        words += f"in steps of {text(knob.step)} "
    if knob.minimum is not None and knob.maximum is not None:
        words += f"from {text(knob.minimum)} to {text(knob.maximum)}"
    elif knob.minimum is not None:
        words += f"from {text(knob.minimum)}"
    elif knob.maximum is not None:
        words += f"up to {text(knob.maximum)}"
    if knob.values:
        listed = ", ".join(text(value) for value in knob.values)
        words = f"{words}, then of {listed}" if words else f"of {listed}"
    return words.strip() or "of any size"


FileSizes = Observed | Proportional | Fixed | Combinations | Independent
AnySizes = FileSizes | MeanRatio
Sizes = Annotated[FileSizes, Field(discriminator="kind")]
