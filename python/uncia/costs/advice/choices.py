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


def choices(found: Study) -> list[Choice]:
    """Every choice for every function, by function and rank."""
    result = []
    estimated = _estimated(found)
    for function, own in found.by_function.items():
        present = found.present(function)
        listed = _closest(
            (one, _observed(found, one, tariff, present)) for one in own for tariff in found.tariffs
        )
        listed += estimated.get(function, [])
        result += ranked(listed)
    return result


def _closest(listed: Iterable[tuple[Configuration, Choice]]) -> list[Choice]:
    """Every measured choice; of those that assume the times of another size, for each size the one
    of the most vCPU that it is not slower than: what it has most in common with."""
    measured: list[Choice] = []
    assumed: dict[tuple[str, Size], list[tuple[Configuration, Choice]]] = defaultdict(list)
    for one, choice in listed:
        if choice.basis == "measured":
            measured.append(choice)
        else:
            assumed[choice.tariff, choice.size].append((one, choice))
    closest = [
        max(own, key=lambda pair: (pair[1].usable is True, pair[0].cpu, pair[0].memory, pair[0]))
        for own in assumed.values()
    ]
    return measured + [choice for _, choice in closest]


def ranked(listed: list[Choice]) -> list[Choice]:
    """The choices of one function in order, each with its rank."""

    def order(one: Choice) -> tuple[object, ...]:
        verdict = {True: 0, None: 1, False: 2}[one.claim.meets]
        cost = one.per_million
        return (
            cost is None or one.usable is not True,
            one.basis != "measured",
            verdict,
            cost if cost is not None else Fraction(0),
            one.tariff,
            one.size.memory or 0,
            one.size.cpu or 0,
            one.platform,
        )

    rank = 0
    result = []
    for one in sorted(listed, key=order):
        if one.per_million is not None and one.usable is True:
            rank += 1
            one = replace(one, rank=rank)
        result.append(one)
    return result


def _observed(found: Study, one: Configuration, tariff: Tariff, present: Configuration) -> Choice:
    """Rows of a configuration under a tariff, at the size that this fits them to."""
    own = found.found[one]
    price = found.prices.get((one, tariff.id), Price())
    size = found.sizes[tariff.id, one]
    measured = allocation(one)
    notes = []
    if is_observed(tariff):
        basis: Basis = "measured"
    elif same(size, measured) and found.measured_there(one, tariff):
        basis = "measured"
    else:
        basis = "estimated"
        notes.append(f"assumes the times of {key_words(one)}")
    if basis == "measured" and owner(one.platform) is None:
        notes.append(f"rows ran on {one.platform or 'a platform that is not named'}")
    claim = found.claims[one]
    if basis == "estimated":
        claim = replace(claim, low=None, high=None, confidence=None)
        if found.bound is not None and claim.value is not None:
            claim = replace(claim, meets=claim.value <= found.bound)
    elif found.bound is not None and claim.confidence is None:
        notes.append(
            f"{claim.rows:,} rows are too few for a claim, it needs {rows_needed(found.level)}"
        )
    usable, why = _usable(found, one, size, price)
    if usable and slower(size, one.cpu) and found.fit == "allocated":
        usable = None
        why = ["less vCPU than the rows ran with: how long they would take was not measured"]
    notes += why
    if price.rows and price.rows < own.rows:
        notes.append(f"priced over {price.rows:,} of {own.rows:,} rows ({_reasons(price)})")
    elif not price.rows:
        notes.append(f"cannot be priced ({_reasons(price)})")
    in_use = found.tariff_in_use(present)
    reference = found.prices.get((present, in_use or tariff.id), Price())
    saved, interval = saving(
        price,
        reference,
        same_rows=one == present,
        level=found.level,
        labels=(one.function, tariff.id, str(one.memory), str(one.cpu), one.platform + "."),
    )
    return Choice(
        function=one.function,
        tariff=tariff.id,
        platform=one.platform,
        size=size,
        basis=basis,
        claim=claim,
        turnaround_p95=found.turnaround.get(one),
        rows=own.rows,
        per_million=price.per_million,
        saved=saved,
        saved_interval=interval,
        usable=usable,
        is_present=one == present and tariff.id == in_use,
        note="; ".join(notes),
    )


def _usable(
    found: Study, one: Configuration, size: Size, price: Price
) -> tuple[bool | None, list[str]]:
    """Whether the platform can run the rows, and why not."""
    own = found.found[one]
    if price.beyond:
        return False, [f"{price.beyond:,} rows exceed what the platform allows"]
    if size.memory is None or (one.memory >= 0 and size.memory >= one.memory):
        return True, []
    least = max(own.peak or 0, own.average or 0)
    if least > size.memory:
        return False, [f"rows used {size_words(Size(least, None))} of memory"]
    if memory_needed(own) is not None:
        return True, []
    return None, [
        "smaller than what was allocated, and the peak of memory was not measured: whether it"
        " suffices is not known"
    ]


def _reasons(price: Price) -> str:
    return ", ".join(f"{rows:,}: {reason}" for reason, rows in price.unpriced.items()) or "no rows"


def _estimated(found: Study) -> dict[str, list[Choice]]:
    """Sizes at which nothing ran, by the CPU-bound model, from the rows of the present size."""
    plans: dict[str, dict[tuple[str, Size], Rows]] = {}
    places = {}
    for function in found.by_function:
        one = found.present(function)
        sample, share = found.samples.get(one), share_of(one)
        if sample is None or not sample.has_cpu or share is None or one.memory < 0:
            continue
        places[function] = (one, share)
    asked = {function: candidates(memory_for(found, one)) for function, (one, _) in places.items()}
    sizes = fitted(found.tariffs, [size for own in asked.values() for size in own])
    for tariff in found.tariffs:
        for function, (one, share) in places.items():
            taken = _known_sizes(found, found.by_function[function], tariff)
            wanted = asked[function]
            if isinstance(tariff.sizes, Proportional):  # its vCPU follows, so steps of it are odd
                wanted = [size for size in wanted if size.cpu == 0]
            for size in dict.fromkeys(sizes[tariff.id, size] for size in wanted):
                if size.memory is None or size.cpu is None:
                    continue
                if any(same(size, other) for other in taken) or is_observed(tariff):
                    continue
                if size.memory < memory_for(found, one):
                    continue
                sample = found.samples[one]
                execution = stretched(sample, share, size.cpu, threads_of(sample))
                plans.setdefault(tariff.id, {})[function, size] = Rows(execution, size, sample)
    result: dict[str, list[Choice]] = defaultdict(list)
    for tariff in found.tariffs:
        groups = plans.get(tariff.id, {})
        billed = bill_rows(found.local, tariff, groups)
        modelled: dict[str, list[Choice]] = defaultdict(list)
        for (function, size), rows in groups.items():
            one, _ = places[function]
            choice = _modelled(found, one, tariff, size, rows, billed[function, size])
            modelled[function].append(choice)
        for function, own in modelled.items():
            result[function] += undominated(own)
    return result


def _known_sizes(found: Study, own: list[Configuration], tariff: Tariff) -> list[Size]:
    """Sizes of which the times are known or assumed, so that they need not be computed."""
    sizes = []
    for one in own:
        size = found.sizes[tariff.id, one]
        if found.fit != "allocated" or not slower(size, one.cpu):
            sizes.append(size)
        # What ran at a size is not computed, whatever size the rule of the fit gives it.
        if found.measured_there(one, tariff):
            sizes.append(allocation(one))
    return sizes


def undominated(listed: list[Choice]) -> list[Choice]:
    """Those choices than which none of the others is both as cheap and as fast."""
    kept: list[Choice] = []
    priced = [one for one in listed if one.per_million is not None and one.usable]
    for one in sorted(priced, key=lambda one: (one.per_million or 0, one.claim.value or 0)):
        if not kept or (one.claim.value or 0) < (kept[-1].claim.value or 0):
            kept.append(one)
    return kept


def _modelled(
    found: Study, one: Configuration, tariff: Tariff, size: Size, rows: Rows, price: Price
) -> Choice:
    times = rows.execution
    start = rows.sample.initialization
    turnaround = None
    if not rows.sample.unknown_start.any():
        turnaround = quantile(np.sort(times + np.maximum(start, 0)), P95)
    of_bound = quantile(np.sort(times), P95)
    if found.of == "turnaround":
        of_bound = turnaround
    meets = None
    if found.bound is not None and of_bound is not None:
        meets = of_bound <= found.bound
    in_use = found.tariff_in_use(one)
    reference = found.prices.get((one, in_use or tariff.id), Price()).per_million
    ours = price.per_million
    threads = threads_of(rows.sample)
    note = (
        f"computed from {rows.sample.said()} of {key_words(one)}: idle time stays, CPU time takes"
        f" as long as the vCPU share says, {threads} {'thread' if threads == 1 else 'threads'};"
        " small shares come out too slow"
    )
    wrong = [f"{price.beyond:,} rows would exceed what the platform allows"] if price.beyond else []
    if not price.rows:
        wrong.append(f"cannot be priced ({_reasons(price)})")
    return Choice(
        function=one.function,
        tariff=tariff.id,
        platform=one.platform,
        size=size,
        basis="estimated",
        claim=Claim(rows.sample.rows, of_bound, None, None, None, meets),
        turnaround_p95=turnaround,
        rows=rows.sample.rows,
        per_million=ours,
        saved=None if ours is None or reference is None else reference - ours,
        saved_interval=None,
        usable=not price.beyond,
        is_present=False,
        note="; ".join([note, *wrong]),
    )


def share_of(one: Configuration) -> int | None:
    """The vCPU share that rows ran at, micro-vCPU; None if it is not known."""
    return one.cpu if one.cpu > 0 else None


def memory_for(found: Study, one: Configuration) -> int:
    """The memory that a size must have, bytes: the most used and `HEADROOM`, never more than was
    allocated; as allocated where the peak is not known."""
    peak = memory_needed(found.found[one])
    if peak is None:
        return one.memory
    return min(one.memory, -int(-peak * HEADROOM // 1))
