"""Whether the rows of a run are as its experiments declare."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from uncia.experiment import expect
from uncia.experiment.plan import ExperimentPlan
from uncia.stats import columns, hops
from uncia.stats.columns import pc


def failures(experiments: Sequence[ExperimentPlan], rows: pa.Table, *, is_whole: bool) -> list[str]:
    """What makes a run a failed one, a sentence each.

    Args:
        experiments: those of the plan.
        rows: the run's invocations.
        is_whole: whether the run came to its end, so that every experiment must have sent requests.
    """
    sentences = []
    unsent = []
    for experiment in experiments:
        attempts = _rows_of(rows, experiment.name)
        requests = attempts.filter(pc.invert(columns.is_preempted(attempts)))
        outcomes = columns.count_words(requests, "outcome")
        starts = columns.count_words(requests, "start")
        # What was preempted ran again: a failure only where a bound on it is declared.
        if "preempted" in experiment.expect.model_fields_set:
            outcomes = columns.count_words(attempts, "outcome")
        breaches = expect.breaches(experiment.expect, outcomes, starts)
        # An experiment that was cut short has not had its chance to keep a lower bound.
        if requests.num_rows and breaches:
            words = ", ".join(breach.sentence() for breach in breaches)
            sentences.append(f"{experiment.name}: {words}")
        if is_whole and requests.column("sent").null_count == requests.num_rows:
            unsent.append(f"{experiment.name}: no request was sent")
        if is_whole and not breaches:
            sentences += _incomplete(experiment, attempts)
    return sentences + unsent


def _incomplete(experiment: ExperimentPlan, rows: pa.Table) -> list[str]:
    """Chains that did not come to their end, though every row that there is ended well."""
    streams = [
        {} if stream.hops is None else {"hops": stream.hops.described()}
        for stream in experiment.streams
    ]
    failed_hops = expect.allows_failures(experiment.expect)
    return [
        f"{experiment.name}: {summary['begun'] - summary['complete']} of {summary['begun']} chains"
        f" {summary['chain']} did not reach all of their {summary['kind']} stages"
        for summary in hops.summarise(rows, None, {"streams": streams})
        if summary["complete"] < summary["begun"] and not failed_hops
    ]


def _rows_of(rows: pa.Table, experiment: str) -> pa.Table:
    return rows.filter(columns.is_word(rows, "experiment", experiment))
