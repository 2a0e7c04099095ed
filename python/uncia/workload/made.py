"""Made functions: one for each recorded function, which takes what that one took.

Of an invocation table, each request takes the duration, CPU time and memory of its row. Of a table
of arrivals, the table of profiles beside it tells how durations and memory are distributed; each
request draws from that, by the seed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from uncia.errors import UnciaError
from uncia.forms import Form, Name
from uncia.units import MIB, NS_PER_MIN, Duration, Size
from uncia.workload import recorded
from uncia.workload.replay import Expansion, Replay, Replayed, name_some, read_path

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Int64s = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]
    Points = tuple[Floats, Floats]

COLUMNS: Final = (
    *("execution", "cpu_user", "cpu_system", "memory_avg", "memory_peak"),
    *("allocated_memory", "allocated_cpu"),
)
"""The columns of an invocation table that say what a request took."""

PROFILES: Final = "profiles.parquet"

_HEADROOM_BYTES: Final = 64 * MIB
_ENDS: Final = {"minimum": 0.0, "maximum": 1.0}


class Made(Form):
    """A function for each recorded one, made from one of the file's."""

    rule: Literal["made"]
    function: Name = Field(
        description="What they are made from; its event has duration, cpu or memory, as spin's has"
    )
    profiles: Annotated[Path, BeforeValidator(read_path)] | None = Field(
        None,
        description="Of a table of arrivals, the table of profiles (default: profiles.parquet"
        " beside it)",
    )
    utilization: float = Field(
        1.0,
        gt=0,
        le=1,
        description="The part of its CPU that a function uses while it runs, where the table does"
        " not tell CPU times",
    )
    duration: Duration | None = Field(
        None, gt=0, description="Of requests whose duration the table does not tell"
    )
    longest: Duration | None = Field(None, gt=0, description="Longer durations are cut to this")
    headroom: Size = Field(
        _HEADROOM_BYTES,
        ge=0,
        description="The memory limit is this much above the most that a request takes, unless the"
        " table tells what was allocated",
    )


@dataclass(frozen=True)
class Demand:
    """What the requests of a recorded function take, in their order.

    Attributes:
        durations: in ns.
        cpu: CPU times in ns, null where the table does not tell.
        memory: resident memory in bytes, null where the table does not tell.
        allocated_memory: the most that was allocated, in bytes, if the table tells.
        allocated_cpu: the most that was allocated, in micro-vCPU, if the table tells.
        cut: how many durations were cut to the longest.
    """

    durations: Int64s
    cpu: pa.Array
    memory: pa.Array
    allocated_memory: int | None
    allocated_cpu: int | None
    cut: int


def demands(
    made: Made, replay: Replay, expanded: Expansion, seed: int, folder: Path
) -> dict[str, Demand]:
    """Compute what each request of a replay takes, by recorded function.

    A duration or memory of a profile is drawn by inverting its distribution function: the minimum,
    the quantiles and the maximum, and straight lines between them; without any, the mean. Of
    profiles of several intervals those count in which the replay starts. Draws are the upper 53
    bits of PCG64, seeded with the SHA-256 of the seed (8 bytes, little-endian), ``duration/`` or
    ``memory/``, and the function's name (UTF-8).

    Args:
        made: how functions are made.
        replay: the replay.
        expanded: its functions, with `COLUMNS` if the table has rows.
        seed: of the experiment, below 2^64.
        folder: base of relative paths.

    Raises:
        UnciaError: the table does not tell some durations, and ``duration`` is not given; or the
            profiles cannot be read.
    """
    has_rows = all(part.columns for part in expanded.replayed)
    source: Mapping[str, _Profile] | None = None
    if not has_rows:
        path = _profiles_path(made, folder / replay.table, folder)
        source = {} if path is None else _profiles(path, expanded)
    result: dict[str, Demand] = {}
    missing: list[str] = []
    for part in expanded.replayed:
        if source is None:
            demand = _of_rows(part, made)
        else:
            demand = _of_profile(part, source.get(part.function), made, seed)
        if demand is None:
            missing.append(part.function)
        else:
            result[part.function] = demand
    if missing:
        raise UnciaError(
            f"{replay.table} does not tell how long requests of {name_some(missing)} took",
            hint="Give a duration for such requests, or name the functions to replay.",
        )
    return result


def _of_rows(part: Replayed, made: Made) -> Demand | None:
    """What the rows of a function say; None: a duration is missing."""
    import pyarrow.compute as pc

    columns = part.columns
    durations = columns["execution"]
    if durations.null_count:
        if made.duration is None:
            return None
        durations = durations.fill_null(made.duration)
    return _demand(
        durations.to_numpy(),
        made,
        cpu=pc.add(columns["cpu_user"], columns["cpu_system"]),
        memory=pc.coalesce(columns["memory_peak"], columns["memory_avg"]),
        allocated_memory=pc.max(columns["allocated_memory"]).as_py(),
        allocated_cpu=pc.max(columns["allocated_cpu"]).as_py(),
    )


def _demand(durations: Int64s, made: Made, **rest: Any) -> Demand:
    import numpy as np

    cut = 0
    if made.longest is not None:
        cut = int((durations > made.longest).sum())
        durations = np.minimum(durations, made.longest)
    return Demand(durations, cut=cut, **rest)


@dataclass(frozen=True)
class _Profile:
    """Distribution functions: probabilities, and the values at them; None: unknown."""

    duration: Points | None
    memory: Points | None


def _of_profile(part: Replayed, profile: _Profile | None, made: Made, seed: int) -> Demand | None:
    """What a function's requests take, drawn from its profile; None: it has no durations."""
    import numpy as np
    import pyarrow as pa

    count = part.arrivals.expected_requests()
    if profile is not None and profile.duration is not None:
        durations = _draw(profile.duration, count, seed, f"duration/{part.function}")
    elif made.duration is not None:
        durations = np.full(count, made.duration, dtype=np.int64)
    else:
        return None
    unknown = pa.nulls(count, pa.int64())
    memory = unknown
    if profile is not None and profile.memory is not None:
        memory = pa.array(_draw(profile.memory, count, seed, f"memory/{part.function}"))
    return _demand(
        durations, made, cpu=unknown, memory=memory, allocated_memory=None, allocated_cpu=None
    )


def _draw(points: Points, count: int, seed: int, label: str) -> Int64s:
    import numpy as np

    key = hashlib.sha256(struct.pack("<Q", seed) + label.encode()).digest()
    raw = np.random.PCG64(int.from_bytes(key, "little")).random_raw(count)
    shares = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
    values: Int64s = np.rint(np.interp(shares, *points)).astype(np.int64)
    return values


def _profiles_path(made: Made, table: Path, folder: Path) -> Path | None:
    if made.profiles is not None:
        return folder / made.profiles
    default = (table if table.is_dir() else table.parent) / PROFILES
    return default if default.exists() else None


def _profiles(path: Path, expanded: Expansion) -> dict[str, _Profile]:
    """Read the profiles of the replayed functions; memory may be that of their applications."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = recorded.profiles(path)
    replayed = pa.array([part.function for part in expanded.replayed])
    of_functions = table.filter(pc.is_in(table["function"].cast(pa.utf8()), replayed))
    apps = of_functions["app"].cast(pa.utf8()).unique().drop_null()
    of_apps = table.filter(
        pc.and_(pc.is_null(table["function"]), pc.is_in(table["app"].cast(pa.utf8()), apps))
    )
    minute = expanded.start_ns // NS_PER_MIN
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in of_functions.to_pylist():
        rows.setdefault(row["function"], []).append(row)
    applications: dict[tuple[str | None, str], list[dict[str, Any]]] = {}
    for row in of_apps.to_pylist():
        applications.setdefault((row["owner"], row["app"]), []).append(row)
    result = {}
    for name, of_name in rows.items():
        application = applications.get((of_name[0]["owner"], of_name[0]["app"]), [])
        result[name] = _Profile(
            _points(of_name, "duration", minute),
            _points(of_name, "memory", minute) or _points(application, "memory", minute),
        )
    return result


def _points(rows: list[dict[str, Any]], column: str, minute: int) -> Points | None:
    """The distribution function of a column in the interval that a minute is in."""
    import numpy as np

    known = [row for row in rows if row[column] is not None]
    begins = {row["minute"] for row in known if row["minute"] is not None}
    if begins:
        begin = max((other for other in begins if other <= minute), default=min(begins))
        known = [row for row in known if row["minute"] in (None, begin)]
    points = {row["quantile"]: row[column] for row in known if row["statistic"] == "quantile"} | {
        _ENDS[row["statistic"]]: row[column] for row in known if row["statistic"] in _ENDS
    }
    if not points:
        points.update((0.0, row[column]) for row in known if row["statistic"] == "mean")
    if not points:
        return None
    shares = np.array(sorted(points), dtype=np.float64)
    values = np.array([points[share] for share in shares], dtype=np.float64)
    # The extremes are of invocations and the quantiles, in Azure's trace, of averages.
    return shares, np.maximum.accumulate(values)
