"""Choices: platforms and sizes for each function, measured and estimated, best first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from uncia.costs.advice.bills import Price, saving
from uncia.costs.advice.choice import Basis, Choice, unpriced_reasons, usability
from uncia.costs.advice.claims import rows_needed
from uncia.costs.advice.estimates import Moved, estimated_choice, estimates, undominated
from uncia.costs.advice.gather import Study, key_words
from uncia.costs.advice.rows import Configuration
from uncia.costs.advice.sizes import Size, allocation, is_observed, same, slower
from uncia.tariffs.model import Tariff


def choices(study: Study, *, all_sizes: bool = False) -> list[Choice]:
    """List the choices for every function, by function and rank.

    Args:
        study: the data.
        all_sizes: whether to keep estimates that are neither cheaper nor faster than another.
    """
    result = []
    sizes, moved = estimates(study)
    for function, configs in study.by_function.items():
        present = study.present(function)
        references = {
            tariff.id: _reference(study, present, tariff, moved) for tariff in study.tariffs
        }
        listed = _closest(
            (config, _of_rows(study, config, tariff, references[tariff.id], moved))
            for config in configs
            for tariff in study.tariffs
        )
        others = [
            estimated_choice(study, estimate, references[estimate.tariff.id].per_million)
            for estimate in sizes
            if estimate.config.function == function
        ]
        listed += others if all_sizes else undominated(others)
        result += ranked(listed, study.models)
    return result


def _reference(study: Study, present: Configuration, tariff: Tariff, moved: Moved) -> Price:
    """The bill of the present size, under the tariff in use or, if that is unknown, under this."""
    key = (present, study.tariff_in_use(present) or tariff.id)
    return moved[key].price if key in moved else study.prices.get(key, Price())


def _closest(observed: Iterable[tuple[Configuration, Choice]]) -> list[Choice]:
    """Keep all measured choices; of those that assume the times of other sizes, keep for each size
    the one with the most similar size: the largest that it is not slower than."""
    measured: list[Choice] = []
    assumed: dict[tuple[str, Size], list[tuple[Configuration, Choice]]] = defaultdict(list)
    for config, choice in observed:
        if choice.basis == "measured":
            measured.append(choice)
        else:
            assumed[choice.tariff, choice.size].append((config, choice))
    closest = [
        max(group, key=lambda pair: (pair[1].usable is True, pair[0].cpu, pair[0].memory, pair[0]))
        for group in assumed.values()
    ]
    return measured + [choice for _, choice in closest]


def ranked(listed: list[Choice], models: frozenset[str] = frozenset()) -> list[Choice]:
    """Sort the choices of one function and number them by rank.

    Args:
        listed: the choices.
        models: ids of tariffs that nobody sells by, which come last.
    """

    def order(choice: Choice) -> tuple[object, ...]:
        verdict = {True: 0, None: 1, False: 2}[choice.claim.meets]
        cost = choice.per_million
        return (
            cost is None or choice.usable is not True,
            choice.tariff in models,
            choice.basis != "measured",
            verdict,
            cost if cost is not None else Fraction(0),
            choice.tariff,
            choice.size.memory or 0,
            choice.size.cpu or 0,
            choice.platform,
        )

    rank = 0
    result = []
    for choice in sorted(listed, key=order):
        if choice.per_million is not None and choice.usable is True:
            rank += 1
            choice = replace(choice, rank=rank)
        result.append(choice)
    return result


def _is_measured(study: Study, config: Configuration, tariff: Tariff) -> bool:
    """Whether rows ran at the size that a tariff bills, on the platform that it bills.

    A model that has no sizes and that nobody sells by bills whatever ran, wherever it ran.
    """
    if is_observed(tariff):
        return not tariff.sold or study.measured_there(config, tariff)
    is_same = same(study.sizes[tariff.id, config], allocation(config))
    return is_same and study.measured_there(config, tariff)


def _of_rows(
    study: Study, config: Configuration, tariff: Tariff, reference: Price, moved: Moved
) -> Choice:
    """The choice of a tariff for the rows of a configuration, at the size they are fitted to."""
    present = study.present(config.function)
    is_present = config == present and tariff.id == study.tariff_in_use(present)
    if (config, tariff.id) in moved:
        choice = estimated_choice(study, moved[config, tariff.id], reference.per_million)
        return replace(choice, is_present=is_present)
    facts = study.facts[config]
    price = study.prices.get((config, tariff.id), Price())
    size = study.sizes[tariff.id, config]
    notes = []
    basis: Basis = "measured"
    if not _is_measured(study, config, tariff):
        basis = "estimated"
        notes.append(f"assumes the times of {key_words(config)}")
    claim = study.claims[config]
    if basis == "estimated":
        claim = replace(claim, low=None, high=None, confidence=None)
        if study.bound is not None and claim.value is not None:
            claim = replace(claim, meets=claim.value <= study.bound)
    elif study.bound is not None and claim.confidence is None:
        notes.append(
            f"{claim.rows:,} rows are too few for a claim, it needs {rows_needed(study.level)}"
        )
    usable, reasons = usability(study, config, size, price)
    if usable and slower(size, config.cpu) and study.fit == "allocated":
        usable = None
        reasons = ["less vCPU than the rows ran with: how long they would take was not measured"]
    notes += reasons
    if price.rows and price.rows < facts.rows:
        notes.append(
            f"priced over {price.rows:,} of {facts.rows:,} rows ({unpriced_reasons(price)})"
        )
    elif not price.rows:
        notes.append(f"cannot be priced ({unpriced_reasons(price)})")
    saved, interval = saving(
        price,
        reference,
        same_rows=config == present,
        level=study.level,
        labels=(
            config.function,
            tariff.id,
            str(config.memory),
            str(config.cpu),
            config.platform + ".",
        ),
    )
    return Choice(
        function=config.function,
        tariff=tariff.id,
        platform=config.platform,
        size=size,
        basis=basis,
        claim=claim,
        turnaround_p95=study.turnaround.get(config),
        rows=facts.rows,
        per_million=price.per_million,
        saved=saved,
        saved_interval=interval,
        usable=usable,
        is_present=is_present,
        note="; ".join(notes),
    )
