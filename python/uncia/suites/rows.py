"""The rows that claims and figures are about: a run's experiment, or a part of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa

from uncia.report.data import RunData
from uncia.stats import columns, comparison, hop_chains, summary
from uncia.stats.columns import pc
from uncia.stats.comparison import Figure, Figures, Measured
from uncia.stats.quantiles import Ints
from uncia.suites.forms import Subject

_Part = TypeVar("_Part")


def _begun(whole: pa.Table, table: pa.Table) -> columns.Column:
    """When each row was due, of hops when their chain's first request was.

    Args:
        whole: all rows of the experiment, which may lead to those.
        table: the rows.
    """
    due = columns.due(table)
    if not pc.any(columns.is_hop(table)).as_py():
        return due
    names = columns.words(whole, "invocation")
    root = dict(zip(names.to_pylist(), hop_chains.roots_of(whole), strict=True))
    known = columns.due(whole)
    of_hop = [root.get(name) for name in columns.words(table, "invocation").to_pylist()]
    # A later attempt is due when the first one was.
    at = pc.index_in(pa.array(of_hop, pa.utf8()), value_set=names.combine_chunks(), skip_nulls=True)
    return pc.coalesce(due, known.combine_chunks().take(at))


def _positions(table: pa.Table) -> dict[str, int]:
    """Of each invocation that an instance is known of, the how many-th it was there, from 1."""
    table = table.filter(pc.is_valid(columns.integers(table, "started")))
    table = table.take(pc.sort_indices(columns.integers(table, "started")))
    counts: Counter[str] = Counter()
    positions: dict[str, int] = {}
    for name, instance in zip(
        columns.words(table, "invocation").to_pylist(),
        columns.words(table, "instance").to_pylist(),
        strict=True,
    ):
        if instance is not None:
            counts[instance] += 1
            positions[name] = counts[instance]
    return positions


@dataclass(frozen=True)
class SubjectRows:
    """A subject with its rows.

    Attributes:
        name: of the subject.
        form: which rows these are.
        run: the run that they are of.
        is_scaled: whether the run's rates are shares of a capacity that was searched before it.
    """

    name: str
    form: Subject
    run: RunData
    is_scaled: bool = False

    @cached_property
    def invocations(self) -> pa.Table:
        """Its invocations, in the order in which they were due or sent."""
        whole = self.run.rows_of.get(self.form.experiment, self.run.invocations.slice(0, 0))
        table = whole
        if self.form.function is not None:
            table = table.filter(columns.is_word(table, "function", self.form.function))
        if self.form.without:
            others = pa.array(self.form.without, pa.utf8())
            is_other = pc.is_in(columns.words(table, "function"), value_set=others)
            table = table.filter(pc.invert(is_other))
        due = columns.due(table)
        table = table.take(pc.sort_indices(due))
        if self.form.after and table.num_rows:
            due = due.take(pc.sort_indices(due))
            late = pc.greater_equal(pc.subtract(_begun(whole, table), due[0]), self.form.after)
            table = table.filter(pc.fill_null(late, False))
        if self.form.life is not None:
            # Of all experiments: an instance may have served others before.
            names = columns.words(table, "invocation").to_pylist()
            first, last = self.form.life
            positions = _positions(self.run.invocations)
            chosen = [first <= positions.get(name, 0) <= last for name in names]
            table = table.filter(pa.array(chosen, pa.bool_()))
        return table.slice(self.form.skip)

    @cached_property
    def requests(self) -> pa.Table:
        """Those of its invocations that are clients' requests: no hops, each request once."""
        return self.invocations.filter(columns.is_request(self.invocations))

    @cached_property
    def ok(self) -> pa.Table:
        """Its invocations that ended ok."""
        return self.invocations.filter(columns.is_word(self.invocations, "outcome", "ok"))

    @property
    def meta(self) -> Mapping[str, Any]:
        """What the run's description says of the experiment."""
        return self.run.experiment_meta.get(self.form.experiment, {})

    def once(self, compute: Callable[[SubjectRows], _Part]) -> _Part:
        """What several metrics are computed from: at the first call, and kept for the others."""
        if compute not in self._parts:
            self._parts[compute] = compute(self)
        part: _Part = self._parts[compute]
        return part

    @cached_property
    def _parts(self) -> dict[Callable[[SubjectRows], Any], Any]:
        return {}

    @cached_property
    def instances(self) -> pa.Table:
        """The instances that served its invocations."""
        table = self.run.instances
        names = pc.unique(columns.words(self.invocations, "instance").drop_null())
        return table.filter(pc.is_in(columns.words(table, "instance"), value_set=names))

    def ordered(self, name: str) -> Ints:
        """The ascending values of a column of integers, of the invocations that ended ok."""
        return columns.ordered(columns.integers(self.ok, name))

    def compared(self, metric: str) -> Figure:
        """A figure of gates, all but costs; MR and TR are relative to the experiment's base."""
        figures = self._compared
        if metric == "mean":
            # It takes longest, as every row is drawn; few claims ask for it.
            figures = comparison.figures(self._measured, self.name, of=[self.name])
        return figures[self.name, metric, ""]

    @cached_property
    def _compared(self) -> Figures:
        return comparison.figures(self._measured, self.name, of=[self.name], means=False)

    @cached_property
    def _measured(self) -> dict[str, Measured]:
        """What a comparison needs of the experiment's base, if it has another, and of its rows."""
        base_name = str(self.meta.get("base") or summary.BASE)
        measured: dict[str, Measured] = {}
        base: Ints | None = None
        if base_name != self.form.experiment and base_name in self.run.experiments:
            rows = SubjectRows(base_name, Subject(experiment=base_name), self.run)
            measured = {base_name: rows.measured(None, base_name)}
            base = summary.infrastructure(
                rows.invocations, self.run.experiment_meta.get(base_name, {})
            )
        measured[self.name] = self.measured(base, base_name)
        return measured

    def measured(self, base: Ints | None, base_name: str) -> Measured:
        """What a comparison needs of its rows, without costs.

        Args:
            base: infrastructure latencies of the base, ascending, ns; None if there is none.
            base_name: the experiment that is the base.
        """
        return Measured(
            summary.summarise(
                self.invocations,
                self.meta,
                base=base,
                base_name=base_name,
                is_base=base_name == self.form.experiment,
            ),
            columns.ordered(columns.latency(self.ok)),
            comparison.lag(self.invocations),
        )
