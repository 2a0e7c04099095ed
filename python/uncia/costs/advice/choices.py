"""Platforms and sizes for each function, with what is known of their p95 and their cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, Literal

import numpy as np

from uncia.costs.advice.bills import Price, saving
from uncia.costs.advice.claims import P95, Claim, rows_needed
from uncia.costs.advice.gather import Study, key_words, memory_needed
from uncia.costs.advice.rows import Configuration
from uncia.costs.advice.sample import Rows, bill_rows, stretched, threads_of
from uncia.costs.advice.sizes import (
    Size,
    allocation,
    candidates,
    fitted,
    is_observed,
    owner,
    same,
    size_words,
    slower,
)
from uncia.stats.quantiles import quantile
from uncia.tariffs.model import Tariff
from uncia.tariffs.sizes import Proportional

HEADROOM: Final = Fraction(6, 5)
"""Memory that a smaller size must have, over the most that was used."""

Basis = Literal["measured", "estimated"]


@dataclass(frozen=True)
class Choice:
    """A platform and size for a function.

    Attributes:
        function: its name.
        tariff: id.
        platform: where the rows that it rests on were measured; "" if not known.
        size: what is billed.
        basis: ``measured``: rows ran at this size, on this provider's platform as far as is known.
            ``estimated``: their times are assumed to hold, or are computed by a model.
        claim: of the p95; of an estimate only its value and whether it keeps the bound.
        turnaround_p95: ns; None if not known.
        rows: how many it rests on.
        per_million: USD; None if nothing could be priced.
        saved: USD a million less than at present; None if that is not known.
        saved_interval: its bootstrap interval.
        usable: False if the platform cannot run it; None if that was not measured.
        is_present: whether it is what the function uses now.
        note: the assumption, and what is missing.
        rank: from 1 within its function: first the measured, cheapest first of those that keep the
            bound, then those that may, then the others; then the estimated likewise; None if it is
            not usable or has no price.
    """

    function: str
    tariff: str
    platform: str
    size: Size
    basis: Basis
    claim: Claim
    turnaround_p95: int | None
    rows: int
    per_million: Fraction | None
    saved: Fraction | None
    saved_interval: tuple[float, float] | None
    usable: bool | None
    is_present: bool
    note: str
    rank: int | None = None


def choices(study: Study) -> list[Choice]:
    """Every choice for every function, by function and rank."""
    result = []
    estimated = _estimated(study)
    for function, configs in study.by_function.items():
        present = study.present(function)
        listed = _closest(
            (config, _observed(study, config, tariff, present))
            for config in configs
            for tariff in study.tariffs
        )
        listed += estimated.get(function, [])
        result += ranked(listed)
    return result


def _closest(observed: Iterable[tuple[Configuration, Choice]]) -> list[Choice]:
    """Every measured choice; of those that assume the times of another size, for each size the one
    of the most vCPU that it is not slower than: what it has most in common with."""
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


def ranked(listed: list[Choice]) -> list[Choice]:
    """The choices of one function in order, each with its rank."""

    def order(choice: Choice) -> tuple[object, ...]:
        verdict = {True: 0, None: 1, False: 2}[choice.claim.meets]
        cost = choice.per_million
        return (
            cost is None or choice.usable is not True,
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


def _observed(
    study: Study, config: Configuration, tariff: Tariff, present: Configuration
) -> Choice:
    """Rows of a configuration under a tariff, at the size that this fits them to."""
    facts = study.facts[config]
    price = study.prices.get((config, tariff.id), Price())
    size = study.sizes[tariff.id, config]
    allocated = allocation(config)
    notes = []
    if is_observed(tariff):
        basis: Basis = "measured"
    elif same(size, allocated) and study.measured_there(config, tariff):
        basis = "measured"
    else:
        basis = "estimated"
        notes.append(f"assumes the times of {key_words(config)}")
    if basis == "measured" and owner(config.platform) is None:
        notes.append(f"rows ran on {config.platform or 'a platform that is not named'}")
    claim = study.claims[config]
    if basis == "estimated":
        claim = replace(claim, low=None, high=None, confidence=None)
        if study.bound is not None and claim.value is not None:
            claim = replace(claim, meets=claim.value <= study.bound)
    elif study.bound is not None and claim.confidence is None:
        notes.append(
            f"{claim.rows:,} rows are too few for a claim, it needs {rows_needed(study.level)}"
        )
    usable, reasons = _usable(study, config, size, price)
    if usable and slower(size, config.cpu) and study.fit == "allocated":
        usable = None
        reasons = ["less vCPU than the rows ran with: how long they would take was not measured"]
    notes += reasons
    if price.rows and price.rows < facts.rows:
        notes.append(f"priced over {price.rows:,} of {facts.rows:,} rows ({_reasons(price)})")
    elif not price.rows:
        notes.append(f"cannot be priced ({_reasons(price)})")
    tariff_in_use = study.tariff_in_use(present)
    reference = study.prices.get((present, tariff_in_use or tariff.id), Price())
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
        is_present=config == present and tariff.id == tariff_in_use,
        note="; ".join(notes),
    )


def _usable(
    study: Study, config: Configuration, size: Size, price: Price
) -> tuple[bool | None, list[str]]:
    """Whether the platform can run the rows, and why not."""
    facts = study.facts[config]
    if price.beyond:
        return False, [f"{price.beyond:,} rows exceed what the platform allows"]
    if size.memory is None or (config.memory >= 0 and size.memory >= config.memory):
        return True, []
    needed = max(facts.peak or 0, facts.average or 0)
    if needed > size.memory:
        return False, [f"rows used {size_words(Size(needed, None))} of memory"]
    if memory_needed(facts) is not None:
        return True, []
    return None, [
        "smaller than what was allocated, and the peak of memory was not measured: whether it"
        " suffices is not known"
    ]


def _reasons(price: Price) -> str:
    return ", ".join(f"{rows:,}: {reason}" for reason, rows in price.unpriced.items()) or "no rows"


def _estimated(study: Study) -> dict[str, list[Choice]]:
    """Sizes at which nothing ran, by the CPU-bound model, from the rows of the present size."""
    plans: dict[str, dict[tuple[str, Size], Rows]] = {}
    present = {}
    for function in study.by_function:
        config = study.present(function)
        sample, share = study.samples.get(config), share_of(config)
        if sample is None or not sample.has_cpu or share is None or config.memory < 0:
            continue
        present[function] = (config, share)
    wanted_sizes = {
        function: candidates(memory_for(study, config)) for function, (config, _) in present.items()
    }
    sizes = fitted(study.tariffs, [size for group in wanted_sizes.values() for size in group])
    for tariff in study.tariffs:
        for function, (config, share) in present.items():
            known_sizes = _known_sizes(study, study.by_function[function], tariff)
            wanted = wanted_sizes[function]
            if isinstance(tariff.sizes, Proportional):  # its vCPU follows, so steps of it are odd
                wanted = [size for size in wanted if size.cpu == 0]
            for size in dict.fromkeys(sizes[tariff.id, size] for size in wanted):
                if size.memory is None or size.cpu is None:
                    continue
                if any(same(size, other) for other in known_sizes) or is_observed(tariff):
                    continue
                if size.memory < memory_for(study, config):
                    continue
                sample = study.samples[config]
                execution = stretched(sample, share, size.cpu, threads_of(sample))
                plans.setdefault(tariff.id, {})[function, size] = Rows(execution, size, sample)
    result: dict[str, list[Choice]] = defaultdict(list)
    for tariff in study.tariffs:
        groups = plans.get(tariff.id, {})
        billed = bill_rows(study.local, tariff, groups)
        by_function: dict[str, list[Choice]] = defaultdict(list)
        for (function, size), rows in groups.items():
            config, _ = present[function]
            choice = _modelled(study, config, tariff, size, rows, billed[function, size])
            by_function[function].append(choice)
        for function, group in by_function.items():
            result[function] += undominated(group)
    return result


def _known_sizes(study: Study, configs: list[Configuration], tariff: Tariff) -> list[Size]:
    """Sizes of which the times are known or assumed, so that they need not be computed."""
    sizes = []
    for config in configs:
        size = study.sizes[tariff.id, config]
        if study.fit != "allocated" or not slower(size, config.cpu):
            sizes.append(size)
        # What ran at a size is not computed, whatever size the rule of the fit gives it.
        if study.measured_there(config, tariff):
            sizes.append(allocation(config))
    return sizes


def undominated(candidates: list[Choice]) -> list[Choice]:
    """Those choices than which none of the others is both as cheap and as fast."""
    result: list[Choice] = []
    priced = [choice for choice in candidates if choice.per_million is not None and choice.usable]
    for choice in sorted(
        priced, key=lambda choice: (choice.per_million or 0, choice.claim.value or 0)
    ):
        if not result or (choice.claim.value or 0) < (result[-1].claim.value or 0):
            result.append(choice)
    return result


def _modelled(
    study: Study, config: Configuration, tariff: Tariff, size: Size, rows: Rows, price: Price
) -> Choice:
    times = rows.execution
    initialization = rows.sample.initialization
    turnaround = None
    if not rows.sample.unknown_start.any():
        turnaround = quantile(np.sort(times + np.maximum(initialization, 0)), P95)
    p95 = quantile(np.sort(times), P95)
    if study.of == "turnaround":
        p95 = turnaround
    meets = None
    if study.bound is not None and p95 is not None:
        meets = p95 <= study.bound
    in_use = study.tariff_in_use(config)
    reference = study.prices.get((config, in_use or tariff.id), Price()).per_million
    cost = price.per_million
    threads = threads_of(rows.sample)
    note = (
        f"computed from {rows.sample.describe()} of {key_words(config)}: idle time stays, CPU time"
        f" takes as long as the vCPU share says, {threads}"
        f" {'thread' if threads == 1 else 'threads'}; small shares come out too slow"
    )
    problems = (
        [f"{price.beyond:,} rows would exceed what the platform allows"] if price.beyond else []
    )
    if not price.rows:
        problems.append(f"cannot be priced ({_reasons(price)})")
    return Choice(
        function=config.function,
        tariff=tariff.id,
        platform=config.platform,
        size=size,
        basis="estimated",
        claim=Claim(rows.sample.rows, p95, None, None, None, meets),
        turnaround_p95=turnaround,
        rows=rows.sample.rows,
        per_million=cost,
        saved=None if cost is None or reference is None else reference - cost,
        saved_interval=None,
        usable=not price.beyond,
        is_present=False,
        note="; ".join([note, *problems]),
    )


def share_of(config: Configuration) -> int | None:
    """The vCPU share that rows ran at, micro-vCPU; None if it is not known."""
    return config.cpu if config.cpu > 0 else None


def memory_for(study: Study, config: Configuration) -> int:
    """The memory that a size must have, bytes: the most used and `HEADROOM`, never more than was
    allocated; as allocated where the peak is not known."""
    peak = memory_needed(study.facts[config])
    if peak is None:
        return config.memory
    return min(config.memory, -int(-peak * HEADROOM // 1))
