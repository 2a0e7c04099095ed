"""Sizes by tariffs: for each function, the best choice of every size that each tariff sells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from uncia.costs.advice.choice import Choice
from uncia.costs.advice.choices import choices
from uncia.costs.advice.estimates import undominated
from uncia.costs.advice.gather import Study
from uncia.costs.advice.rows import UNKNOWN
from uncia.costs.advice.sizes import usual_tariffs
from uncia.tariffs import catalogue


@dataclass(frozen=True)
class Cell:
    """A size under a tariff.

    Attributes:
        choice: the best choice of this tariff with this memory; its vCPU may vary.
        is_best: whether it is the best of its function.
    """

    choice: Choice
    is_best: bool


def default_tariffs() -> list[str]:
    """The ids of the tariffs that a matrix has by default: the usual one of each provider."""
    return [name for name in usual_tariffs() if name in catalogue.billable()]


def matrix(study: Study) -> list[Cell]:
    """List the cells of every function's matrix, by function, memory and tariff.

    A size that no row ran at has a row only if it is cheaper or faster than every other size under
    some tariff. Choices that cannot run or have no price have no cell.
    """
    by_function: dict[str, list[Choice]] = defaultdict(list)
    for choice in choices(study, all_sizes=True):
        if choice.rank is not None:
            by_function[choice.function].append(choice)
    cells = []
    for function, listed in by_function.items():
        sizes = {choice.size.memory for choice in undominated(listed)}
        for config in study.by_function[function]:
            sizes.add(None if config.memory == UNKNOWN else config.memory)
        best = first_choice(listed)
        by_cell: dict[tuple[int | None, str], list[Choice]] = defaultdict(list)
        for choice in listed:
            if choice.size.memory in sizes:
                by_cell[choice.size.memory, choice.tariff].append(choice)
        order = {tariff.id: index for index, tariff in enumerate(study.tariffs)}
        for key in sorted(by_cell, key=lambda key: (key[0] or 0, order[key[1]])):
            cell_choice = first_choice(by_cell[key])
            cells.append(Cell(cell_choice, cell_choice is best))
    return cells


def first_choice(listed: Sequence[Choice]) -> Choice:
    """Select the first by rank that is not known to break the bound; if all do, the first."""

    def order(choice: Choice) -> tuple[bool, int]:
        return choice.claim.meets is False, choice.rank or 0

    return min(listed, key=order)
