"""What a listener outside heard of instances (`uncia.suites.listener`)."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uncia.errors import UnciaError
from uncia.stats.comparison import Figure
from uncia.suites.listener import FILE
from uncia.suites.metrics import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from uncia.suites.rows import SubjectRows


def _is_lost(connection: Mapping[str, Any]) -> bool:
    return connection.get("end") == "silent"


def _is_signalled(connection: Mapping[str, Any]) -> bool:
    return connection.get("signalled") is True


def _share(
    holds: Callable[[Mapping[str, Any]], bool],
    by_instance: bool,
    subject: SubjectRows,
    tariff: str,
) -> Figure:
    """The share of all connections of the run, or instances; a listener knows no experiments.

    An instance may have had several connections, one after the other, by the same name.
    """
    del tariff
    path = subject.run.path / FILE
    try:
        heard = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Figure(None, why="nothing outside of the instances listened to them")
    except (ValueError, OSError) as error:
        raise UnciaError(f"{path}: this is not what a listener wrote: {error}") from error
    if not isinstance(heard, list) or not all(isinstance(item, dict) for item in heard):
        raise UnciaError(f"{path}: this is not what a listener wrote: it is no list of objects")
    if not heard:
        return Figure(None, why="no instance opened a connection")
    flags = [holds(item) for item in heard]
    if by_instance:
        instances: dict[object, bool] = {}
        for item, holding in zip(heard, flags, strict=True):
            name = item.get("name")
            instances[name] = instances.get(name, False) or holding
        flags = list(instances.values())
    return Figure(100.0 * sum(flags) / len(flags), rows=len(flags), count=sum(flags))


METRICS: Final = (
    Metric(
        "lost",
        "share",
        "%",
        "Share of connections that their peer closed, as nothing came over them for 1.5 s.",
        partial(_share, _is_lost, False),
    ),
    Metric(
        "signalled",
        "share",
        "%",
        "Share of instances that saw SIGTERM before they ended.",
        partial(_share, _is_signalled, True),
    ),
)
