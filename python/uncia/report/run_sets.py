"""Sets of runs: several runs of one experiment, as one side of a comparison."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from uncia.doctor.monitor import BACKGROUND, NOISE, STEAL
from uncia.doctor.noise import BACKGROUND_PERCENT, STEAL_PERCENT
from uncia.errors import UnciaError
from uncia.report.data import RunData
from uncia.runs.folder import RUN, read_run
from uncia.stats import columns
from uncia.stats.columns import pc
from uncia.stats.quantiles import Floats
from uncia.stats.verdicts import Noise, Side

_KINDS: Final = (
    (STEAL, STEAL_PERCENT, "the host kept {} of the CPU time for others (steal)"),
    (BACKGROUND, BACKGROUND_PERCENT, "other processes used {} of the CPU time"),
)
"""(counter, percent that impairs results, sentence)."""

_UNFINISHED: Final = ("running", "interrupted", "crashed")


@dataclass(frozen=True)
class RunSet:
    """The run folders of one side.

    Attributes:
        folders: at least one.
        name: what to call them; None for the name of the run.
        warnings: what was left out.
    """

    folders: Sequence[Path]
    name: str | None = None
    warnings: Sequence[str] = field(default_factory=tuple)


def find(path: Path) -> RunSet:
    """Find the runs in a folder: the run that it is, or those in its subfolders.

    Runs that ended early are left out of a folder of runs, with a warning.

    Raises:
        UnciaError: all its runs ended early, or a ``run.yaml`` in it is damaged or missing.
    """
    if (path / RUN).exists() or any(path.glob("invocations.*")) or not path.is_dir():
        return RunSet([path])
    folders = sorted(file.parent for file in path.glob(f"*/{RUN}"))
    rows = {file.parent for file in path.glob("*/invocations.*")}
    if lost := sorted(rows.difference(folders)) if folders else []:
        raise UnciaError(
            f"{lost[0]} is damaged: it has rows, and {RUN} is missing",
            hint="Give the runs that are whole, each by its folder.",
        )
    if not folders:
        return RunSet([path])
    status = {folder: str(read_run(folder).get("status")) for folder in folders}
    whole = [folder for folder in folders if status[folder] not in _UNFINISHED]
    warnings = [
        f"{folder}: left out, as it is {status[folder]}."
        for folder in folders
        if folder not in whole
    ]
    if not whole:
        raise UnciaError(f"{path}: every run in it ended early: {' '.join(warnings)}")
    return RunSet(whole, _name(path, whole), warnings)


def join(sets: Sequence[RunSet]) -> RunSet:
    """Several sets as one side."""
    if len(sets) == 1:
        return sets[0]
    folders = [folder for part in sets for folder in part.folders]
    repeated = next((folder for folder in folders if folders.count(folder) > 1), None)
    if repeated is not None:
        raise UnciaError(
            f"{repeated} stands twice on one side", hint="A run counts once: give each run once."
        )
    warnings = [text for part in sets for text in part.warnings]
    return RunSet(folders, f"{folders[0].name} and {len(folders) - 1} more", warnings)


def pairs(
    baseline: Sequence[RunData], candidate: Sequence[RunData]
) -> tuple[list[int], list[int]] | None:
    """The order in which runs form pairs, if they were interleaved: one of each side in turn.

    Returns:
        Indices into both sides, pair by pair; None if the runs were not interleaved.
    """
    if len(baseline) != len(candidate) or len(baseline) < 2:
        return None
    begun = []
    for side, runs in enumerate((baseline, candidate)):
        for index, run in enumerate(runs):
            epoch = run.meta.get("epoch_unix_ns")
            if not isinstance(epoch, int):
                return None
            begun.append((epoch, side, index))
    begun.sort()
    order: tuple[list[int], list[int]] = ([], [])
    for first, second in zip(begun[::2], begun[1::2], strict=True):
        if first[1] == second[1] or first[0] == second[0]:
            return None
        for _, side, index in (first, second):
            order[side].append(index)
    return order


def noise(baseline: Sequence[RunData], candidate: Sequence[RunData]) -> Noise:
    """How much CPU time others took while the runs of both sides went on.

    A side counts as the worse one if it lost more CPU time by as much as impairs results.
    """
    return noise_between(taken(baseline), taken(candidate))


def noise_between(baseline: Mapping[str, float], candidate: Mapping[str, float]) -> Noise:
    """As `noise`, of what `taken` says of both sides."""
    sentences = []
    worse: Side | None = None
    for counter, limit, words in _KINDS:
        before, after = baseline.get(counter), candidate.get(counter)
        if before is None or after is None or max(before, after) <= limit:
            continue
        shares = f"{before:.1f} % (baseline) and {after:.1f} % (candidate)"
        sentences.append(words.format(shares))
        if abs(after - before) > limit:
            worse = worse or ("candidate" if after > before else "baseline")
    return Noise(" and ".join(sentences), worse)


def taken(runs: Sequence[RunData]) -> dict[str, float]:
    """How much CPU time others took on average, in percent, by counter; without those unknown."""
    means = {counter: _mean(runs, counter) for counter, _, _ in _KINDS}
    return {counter: mean for counter, mean in means.items() if mean is not None}


def disturbance(runs: Sequence[RunData]) -> str:
    """What took so much CPU time from some runs that it impairs results; "" if nothing did."""
    sentences = [
        words.format(f"{mean:.1f} %")
        for counter, limit, words in _KINDS
        if (mean := _mean(runs, counter)) is not None and mean > limit
    ]
    return " and ".join(sentences)


def _mean(runs: Sequence[RunData], counter: str) -> float | None:
    """A counter's mean over its samples of all runs; None if no run has it."""
    values = [_samples(run, counter) for run in runs]
    count = sum(it.size for it in values)
    return float(sum(it.sum() for it in values)) / count if count else None


def _samples(run: RunData, counter: str) -> Floats:
    """A counter's samples on this machine, by what watches beside every run.

    On another machine, the platform itself may be what is busy there.
    """
    rows = run.machine
    # Runs of earlier versions say of no sample by which monitor it is.
    is_noise = pc.equal(pc.coalesce(columns.words(rows, "monitor"), NOISE), NOISE)
    is_here = pc.is_null(columns.words(rows, "host"))
    is_of_counter = columns.is_word(rows, "counter", counter)
    rows = rows.filter(pc.and_(is_of_counter, pc.and_(is_noise, is_here)))
    return np.asarray(columns.column(rows, "value", pa.float64()).drop_null().to_numpy())


def _name(path: Path, folders: Sequence[Path]) -> str:
    return f"{path.name or path} ({len(folders)} runs)"
