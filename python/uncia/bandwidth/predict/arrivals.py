"""When requests of a prediction come: as an option says, as a run's rows show, or as published."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from uncia.bandwidth.predict.measured import rows_of
from uncia.bandwidth.predict.model import RANDOM, Arrivals
from uncia.bandwidth.presets import Preset, Quantiles
from uncia.errors import UnciaError
from uncia.stats.quantiles import quantiles_of
from uncia.units import NS_PER_MS, UnitError, parse_duration

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Ints: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
_CLOSED_TIME: Final = "Write closed:160ms"


def choose(
    preset: Preset, text: str | None, table: Path | None, function: str | None = None
) -> Arrivals:
    """Choose the arrivals of a prediction.

    Args:
        preset: the platform.
        text: ``random``, ``closed`` or ``closed:TIME``; None: as the table was measured.
        table: the measured table or run that the CPU time is from, if it is from one.
        function: the one of the run, if it has several.

    Raises:
        UnciaError: the text is neither, or the time between requests is not known.
    """
    run = None if table is None or table.suffix == ".csv" else _of_run(table, preset, function)
    if text is None:
        if run is not None:
            return run
        text = "closed" if table is not None and preset.think is not None else "random"
    kind, colon, pause = text.partition(":")
    if kind == "random" and not colon:
        return RANDOM
    if kind != "closed":
        raise UnciaError(
            f"--arrivals: {text!r} is neither random nor closed nor closed:TIME",
            f"{_CLOSED_TIME} for one request at a time, 160 ms after the last one's end.",
        )
    if colon:
        try:
            think = parse_duration(pause)
        except UnitError as error:
            raise UnciaError(f"--arrivals: {error}", f"{_CLOSED_TIME}.") from error
        return Arrivals(
            Quantiles(((0.0, think), (1.0, think))),
            f"one at a time, each {pause.strip()} after the end of the last one",
        )
    if run is not None and run.think is not None:
        return run
    if preset.think is None:
        raise UnciaError(
            f"--arrivals: the time between requests of published runs on {preset.title} is not"
            " known",
            f"{_CLOSED_TIME}, with the time from the end of one to the beginning of the next.",
        )
    return Arrivals(preset.think, _one_at_a_time(preset.think, "as in the published runs"))


def _of_run(path: Path, preset: Preset, function: str | None) -> Arrivals:
    """Tell from a run's rows how its requests came.

    In a closed loop a request comes some time after an answer: these pauses, within an instance
    and by the platform's clock, are those of the prediction. In an open loop requests know nothing
    of answers, and come anywhere in the period.
    """
    rows = rows_of(path, function)
    is_open = rows["open_loop"].combine_chunks()
    if is_open.null_count:
        return Arrivals(None, f"at random ({path} does not say how its requests were sent)")
    if is_open.true_count == len(is_open):
        regular = _regular(rows, preset)
        return Arrivals(None, f"at random, as in {path}, an open loop" + regular)
    if is_open.true_count or rows["parent"].null_count < rows.num_rows:
        return Arrivals(None, f"at random ({path} has both open and closed loops, or chains)")
    pauses = _pauses(rows)
    if not pauses.size:
        return Arrivals(
            None, f"at random ({path} is a closed loop, of which no instance served two requests)"
        )
    values = [round(value) for value in quantiles_of(pauses, _SHARES)]
    points = [(0.0, int(pauses.min())), *zip(_SHARES, values, strict=True)]
    think = Quantiles((*points, (1.0, int(pauses.max()))))
    return Arrivals(think, _one_at_a_time(think, f"as in {path}"))


def _one_at_a_time(think: Quantiles, source: str) -> str:
    middle = next(value for share, value in think.points if share == 0.5)
    return (
        f"one at a time, each about {middle / NS_PER_MS:.4g} ms after the end of the last one,"
        f" {source}"
    )


def _pauses(rows: pa.Table) -> Ints:
    """Compute the times from the end of a request to the begin of the instance's next, in ns."""
    import numpy as np
    import pyarrow.compute as pc

    known = pc.and_(
        pc.is_valid(rows["instance"]),
        pc.and_(pc.is_valid(rows["started"]), pc.is_valid(rows["ended"])),
    )
    rows = rows.filter(known)
    if rows.num_rows < 2:
        return np.empty(0, dtype=np.int64)
    instances, experiments = (_codes(rows[column]) for column in ("instance", "experiment"))
    started, ended = rows["started"].to_numpy(), rows["ended"].to_numpy()
    order = np.lexsort((started, experiments, instances))
    instances, experiments = instances[order], experiments[order]
    # Between two experiments is a time that no request waited for.
    is_next = (instances[1:] == instances[:-1]) & (experiments[1:] == experiments[:-1])
    pauses: Ints = (started[order][1:] - ended[order][:-1])[is_next]
    # Of an instance that serves several at once, those that overlap have no pause.
    return pauses[pauses >= 0]


def _codes(texts: pa.ChunkedArray) -> Ints:
    """Number the distinct texts; null is -1."""
    import pyarrow as pa

    array = texts.cast(pa.utf8()).combine_chunks().dictionary_encode()
    codes: Ints = array.indices.fill_null(-1).to_numpy()
    return codes


def _regular(rows: pa.Table, preset: Preset) -> str:
    """A remark on requests at one distance, if that is a whole number of quota periods."""
    import numpy as np

    times = np.sort(rows["scheduled"].drop_null().to_numpy())
    gaps = np.unique(np.diff(times))
    period = preset.platform.period_ns
    if gaps.size != 1 or gaps[0] == 0 or gaps[0] % period:
        return ""
    return (
        f" (whose requests came every {gaps[0] / NS_PER_MS:g} ms, a whole number of quota periods:"
        " what they took is of one place in the period, and says little of others)"
    )
