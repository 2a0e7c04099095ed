"""Rates as shares of a capacity: it is searched before a run, and rates are scaled to it.

What was searched stands in ``capacities/DIGEST`` of the results, a run with its rows beside
``capacity.json``; runs of the same functions on the same platform share it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from uncia import yamlio
from uncia.errors import RunFailedError, UnciaError
from uncia.experiment.capacity import Finder, of_experiment
from uncia.experiment.progress import Reporter
from uncia.runs.capacity import KnownCapacity
from uncia.stats.slopes import TOLERANCE
from uncia.suites.forms import Capacity
from uncia.units import format_rate, parse_rate


def of_file(
    document: yamlio.Document, form: Capacity, results: Path, base: Path, reporter: Reporter
) -> KnownCapacity:
    """The capacity of an experiment's function; searched unless it is known.

    Args:
        document: the experiment file.
        form: which experiment.
        results: the folder of the suite's results.
        base: the folder that paths in the file are relative to.
        reporter: receives progress updates.

    Raises:
        UnciaError: there is none, or it could not be decided.
        KeyboardInterrupt: a signal came.
    """
    content, sender = of_experiment(document, form.experiment)
    # What else the file deploys has no part in it.
    used = {stream["function"] for stream in sender.get("mix", [sender])}
    functions = {name: it for name, it in content["functions"].items() if name in used}
    content = {
        key: value
        for key, value in {**content, "functions": functions}.items()
        if key not in ("description", "monitors", "services")
    }
    sender = {key: value for key, value in sender.items() if key != "monitors"}
    text = json.dumps([content, sender], sort_keys=True)
    folder = results / "capacities" / hashlib.sha256(text.encode()).hexdigest()[:16]
    try:
        known = KnownCapacity.read(folder)
    except UnciaError:
        known = None
    if known is None:
        reporter.note(f"The capacity of {form.experiment} is searched.")
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        finder = Finder(content, sender, base, None, TOLERANCE)
        result = finder.find(out=folder, overwrite=True, reporter=reporter, seed=None)
        if result.outcome.interrupted is not None:
            raise KeyboardInterrupt
        if result.outcome.error is not None:
            raise result.outcome.error
        known = KnownCapacity.read(folder)
    if known is None:
        raise RunFailedError(f"{form.experiment}: no capacity was found, so that no rate is known")
    capacity = replace(known, search=folder.name)
    sure = "" if capacity.decided else ", which could not be decided further"
    reporter.note(
        f"The capacity of {form.experiment} is {capacity.per_s:.4g}/s, between"
        f" {capacity.low_per_s:.4g} and {capacity.high_per_s:.4g}{sure}."
    )
    return capacity


def scaled(document: yamlio.Document, form: Capacity, found_per_s: float) -> yamlio.Document:
    """The file with the rates of its experiments scaled from what they are shares of.

    Args:
        document: the experiment file, whose rates are of the form's capacity.
        form: of which capacity, and which functions' rates are scaled.
        found_per_s: the capacity that there is.
    """
    factor = Fraction(found_per_s).limit_denominator(10**6) / form.at
    experiments = {
        name: _scaled(experiment, form, factor)
        for name, experiment in document.data["experiments"].items()
    }
    return document.with_data({**document.data, "experiments": experiments})


def _scaled(sender: Mapping[str, Any], form: Capacity, factor: Fraction) -> dict[str, Any]:
    """An experiment or a stream of a mix."""
    changed = dict(sender)
    if "mix" in changed:
        changed["mix"] = [_scaled(stream, form, factor) for stream in changed["mix"]]
    is_scaled = not form.functions or changed.get("function") in form.functions
    for key in ("arrivals", "warmup"):
        pacing = changed.get(key)
        if is_scaled and isinstance(pacing, Mapping) and "rate" in pacing:
            rate = Fraction(f"{float(parse_rate(pacing['rate']) * factor):.6g}")
            changed[key] = {**pacing, "rate": format_rate(rate)}
    return changed


def check(document: yamlio.Document, key: yamlio.KeyPath, form: Capacity, path: Path) -> None:
    """Check that a run's file has the experiment and the functions.

    Raises:
        UnciaError: it has not; with file, line and key.
    """
    file = yamlio.load(path)
    known = tuple(file.data["experiments"])
    if form.experiment not in known:
        raise document.error((*key, "experiment"), "there is no such experiment", known)
    for function in form.functions:
        if function not in file.data["functions"]:
            raise document.error(
                (*key, "functions"), f"no function {function!r}", tuple(file.data["functions"])
            )
    try:
        of_experiment(file, form.experiment)
    except UnciaError as error:
        raise document.error((*key, "experiment"), error.message, hint=error.hint) from error
