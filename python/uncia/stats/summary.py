"""Summaries of experiments: the part ``experiments`` of `summary.json`.

Rows. ``latency_ms`` is over the rows with outcome ``ok`` that have both a scheduled and a received
time (``latency_rows`` of them); ``outcomes`` counts all rows, and ``latency_answered_ms`` has the
same quantiles over all rows with any answer. Nothing is trimmed. Latency is received - scheduled,
so it includes the delay of a request that the generator sent late (no coordinated omission);
generator lag is sent - scheduled. Rows that no client sent (``hop_rows`` of the ``invocations``)
have neither time; `uncia.stats.hops` summarises them. An attempt that was preempted is a row beside
that of the next one, which has the client's answer: it counts under ``preempted_attempts`` alone.

MR, TR and TMR are those of STeLLAR (Ustiugov et al., IISWC 2021, section V and table I):

* MR = p50 / base p50, TR = p99 / base p50, where base is the experiment named ``warm`` (or the
  one that the description names under ``base``);
* TMR = p99 / p50.

The deliberate wait of a function (``wait_ns`` in the experiment's description) is first subtracted
from every latency, in the base as well, so that all three describe the platform alone and
TMR = TR / MR (the paper's footnote 7; the paper subtracts it for MR and TR, and does not say
whether it does for TMR). ``latency_ms`` includes the wait.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa

from uncia.stats import bootstrap, columns, untimed
from uncia.stats.columns import pc
from uncia.stats.quantiles import (
    QUANTILES,
    Ints,
    confidence_interval,
    minimum_rows,
    quantile,
)
from uncia.stats.tally import Tally

BASE: Final = "warm"
"""Default base experiment, to whose median MR and TR are relative."""

WARMUP_SUFFIX: Final = ".warmup"
"""Suffix of experiments with the requests sent before another one is measured. Their rows are kept,
counted and billed, but are no result."""

HIGH_RATIO: Final = 10.0
"""MR, TR or TMR above this is potentially problematic (STeLLAR, section V and table I)."""

LAG_LIMIT_US: Final = 1_000.0
"""Generator lag (p99) above this gives a warning that the client was late."""

_AT_MOST: Final = re.compile(r"at most (?P<number>[0-9]+(\.[0-9]+)?)(?P<percent>%)?")

_NS_PER_MS: Final = 1e6
_NS_PER_US: Final = 1e3


def experiments(table: pa.Table, run_meta: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """Summarise all experiments of a run, by name.

    Args:
        table: the run's invocations.
        run_meta: the resolved run description (``run.yaml``); its ``experiments`` give the order
            and, of each, ``wait_ns``, ``expect`` and ``base``. A described experiment without rows
            has counts of 0 and no latency.

    Returns:
        name -> summary (see `summarise`).
    """
    tables = columns.by_word(table, "experiment")
    return of_tallies({name: Tally([rows]) for name, rows in tables.items()}, run_meta)


def of_tallies(
    tallies: Mapping[str, Tally], run_meta: Mapping[str, object]
) -> dict[str, dict[str, Any]]:
    """As `experiments`, of what is kept of the rows of each."""
    described = columns.experiments_of(run_meta)
    names = [*described, *(name for name in tallies if name not in described)]
    parts = {name: tallies[name] if name in tallies else Tally([]) for name in names}
    result = {}
    for name in names:
        meta = described.get(name, {})
        base_name = str(meta.get("base") or BASE)
        base = None
        if base_name in parts and base_name != name:
            base = _positive(parts[base_name].latency - wait_ns(described.get(base_name, {})))
        result[name] = of_tally(
            parts[name], meta, base=base, base_name=base_name, is_base=base_name == name
        )
    return result


def summarise(
    table: pa.Table,
    experiment_meta: Mapping[str, object],
    *,
    base: Ints | None = None,
    base_name: str = BASE,
    is_base: bool = False,
    seed: int = bootstrap.SEED,
) -> dict[str, Any]:
    """Summarise one experiment.

    Args:
        table: the invocations of this experiment only.
        experiment_meta: its resolved description: ``wait_ns`` (int), ``expect`` (see `failures`).
        base: infrastructure latencies of the base experiment, ascending, ns (`infrastructure`).
        base_name: the name of the base experiment.
        is_base: whether this experiment is the base.
        seed: of the bootstrap intervals.

    Returns:
        A dictionary of plain JSON values; one that cannot be computed is None, never 0.
    """
    return of_tally(
        Tally([table]), experiment_meta, base=base, base_name=base_name, is_base=is_base, seed=seed
    )


def of_tally(
    tally: Tally,
    experiment_meta: Mapping[str, object],
    *,
    base: Ints | None = None,
    base_name: str = BASE,
    is_base: bool = False,
    seed: int = bootstrap.SEED,
) -> dict[str, Any]:
    """As `summarise`, of what is kept of the rows."""
    latency, outcomes, starts = tally.latency, tally.words["outcome"], tally.words["start"]
    failed = failures(outcomes, experiment_meta)
    # The beginning of a sequence is an execution of the platform's, and starts no function.
    unknown = tally.unknown_hops + (0 if _has_sequences(experiment_meta) else tally.unknown)
    wait = wait_ns(experiment_meta)
    infra = _positive(latency - wait if wait else latency)
    if is_base:
        base = infra
    ratios = stellar_ratios(infra, base, is_base=is_base, seed=seed)
    return {
        "functions": sorted(tally.words["function"]),
        "platforms": sorted(tally.words["platform"]),
        "invocations": tally.rows,
        "hop_rows": tally.hops,
        "preempted_attempts": tally.preempted,
        "sent": tally.sent,
        "unsent_rows": tally.unsent,
        "untimed_rows": tally.untimed,
        "answered": tally.received,
        "failed": sum(failed.values()),
        "outcomes": outcomes,
        "failed_outcomes": failed,
        # Where no request says how it started, nobody counted.
        "cold": starts.get("cold", 0) if starts or not tally.rows else None,
        "starts": starts,
        # What a throttled request or a timeout met is no instance that nobody knows of.
        "start_rows": tally.rows - tally.unknown - tally.unknown_hops,
        "unknown_starts": unknown,
        "instances": tally.instances,
        "absurd_latency_rows": tally.absurd,
        "latency_rows": int(latency.size),
        "latency_ms": quantiles(latency, _NS_PER_MS),
        "latency_ci95_ms": intervals(latency, _NS_PER_MS),
        "unsupported_quantiles": unsupported(int(latency.size)),
        "latency_answered_rows": int(tally.answered.size),
        "latency_answered_ms": quantiles(tally.answered, _NS_PER_MS),
        "wait_ms": wait / _NS_PER_MS,
        "base": base_name if base is not None and base.size else None,
        **ratios,
        "lag_us": quantiles(tally.lag, _NS_PER_US, ("p50", "p99")),
        "offered_rate": tally.scheduled.rate(),
        "achieved_rate": tally.answers.rate(),
        "by_burst_size": _by_burst_size(tally.bursts, wait, base, is_base=is_base, seed=seed),
    }


def quantiles(
    ordered: Ints, unit: float, names: tuple[str, ...] = tuple(QUANTILES)
) -> dict[str, float | None]:
    """Named quantiles, the largest value and the mean of ascending values, divided by `unit`."""
    result: dict[str, float | None] = {}
    for name in names:
        value = quantile(ordered, QUANTILES[name])
        result[name] = None if value is None else value / unit
    result["max"] = int(ordered[-1]) / unit if ordered.size else None
    result["mean"] = float(ordered.mean()) / unit if ordered.size else None
    return result


def intervals(ordered: Ints, unit: float) -> dict[str, list[float] | None]:
    """The 95 % order-statistic intervals of the named quantiles; None where n is too small."""
    result: dict[str, list[float] | None] = {}
    for name, order in QUANTILES.items():
        interval = confidence_interval(ordered, order)
        result[name] = None if interval is None else [interval[0] / unit, interval[1] / unit]
    return result


def unsupported(n: int) -> list[str]:
    """The named quantiles for which `n` rows are too few (see `minimum_rows`)."""
    return [name for name, order in QUANTILES.items() if n < minimum_rows(order)]


def infrastructure(table: pa.Table, experiment_meta: Mapping[str, object]) -> Ints:
    """Latencies of the rows with outcome ok less the deliberate wait, ascending, ns.

    The result is empty if a value is not positive (the function returned before its wait was over),
    which would make the ratios meaningless.
    """
    ok = table.filter(columns.is_word(table, "outcome", "ok"))
    latency = columns.ordered(columns.latency(ok))
    return _positive(latency - wait_ns(experiment_meta))


def stellar_ratios(
    latencies: Ints, base: Ints | None, *, is_base: bool = False, seed: int = bootstrap.SEED
) -> dict[str, Any]:
    """Compute MR, TR and TMR with their 95 % bootstrap intervals.

    Args:
        latencies: infrastructure latencies of the experiment, ascending, ns.
        base: those of the base experiment, or None if there is none.
        is_base: whether `latencies` are the base's; they are then resampled once, so MR is 1
            without spread.
        seed: of the resampling.

    Returns:
        ``mr``, ``tr``, ``tmr`` and ``mr_ci95``, ``tr_ci95``, ``tmr_ci95``; None without rows. An
        interval is None where the sample is too small for its quantile: a bootstrap knows nothing
        of the unobserved tail, and would be far too narrow.
    """
    result: dict[str, Any] = dict.fromkeys(("mr", "tr", "tmr", "mr_ci95", "tr_ci95", "tmr_ci95"))
    if latencies.size == 0:
        return result
    orders = (QUANTILES["p50"], QUANTILES["p99"])
    median, tail = (_quantile(latencies, order) for order in orders)
    draws = bootstrap.quantiles(latencies, orders, bootstrap.generator(seed, "own"))
    result["tmr"] = tail / median
    tail_supported = latencies.size >= minimum_rows(QUANTILES["p99"])
    if tail_supported:
        result["tmr_ci95"] = list(bootstrap.interval(bootstrap.ratio(draws[1], draws[0])))
    if base is None or base.size == 0:
        return result
    base_median = _quantile(base, orders[0])
    base_draws = draws[0]
    if not is_base:
        base_draws = bootstrap.quantiles(base, orders[:1], bootstrap.generator(seed, "base"))[0]
    enough = minimum_rows(QUANTILES["p50"])
    median_supported = latencies.size >= enough and base.size >= enough
    for name, value, drawn, supported in (
        ("mr", median, draws[0], median_supported),
        ("tr", tail, draws[1], tail_supported and median_supported),
    ):
        result[name] = value / base_median
        if supported:
            result[f"{name}_ci95"] = list(bootstrap.interval(bootstrap.ratio(drawn, base_draws)))
    return result


def failures(outcomes: Mapping[str, int], experiment_meta: Mapping[str, object]) -> dict[str, int]:
    """Count the failed rows, by outcome.

    An outcome other than ``ok`` is a failure unless the description declares it under ``expect``:
    as a list of words, or as a mapping of word to bound (``allowed``, ``none``, ``all``,
    ``at most 5``, ``at most 1%``, ``at least 95%``). An outcome above its bound counts whole.
    """
    rows = sum(outcomes.values())
    return {
        word: count
        for word, count in outcomes.items()
        if word != "ok" and not _declared(word, count, rows, experiment_meta.get("expect"))
    }


def _has_sequences(experiment_meta: Mapping[str, object]) -> bool:
    chains = columns.chains_of(experiment_meta)
    return any(chain["kind"] == "sequence" for chain in chains.values())


def _declared(word: str, count: int, rows: int, expect: object) -> bool:
    if isinstance(expect, str | list | tuple | set):
        return word == expect if isinstance(expect, str) else word in expect
    bound = expect.get(word) if isinstance(expect, Mapping) else None
    if not isinstance(bound, str):
        return False
    match = _AT_MOST.fullmatch(bound)
    if match is None:
        return bound in ("allowed", "all") or bound.startswith("at least ")
    most = Fraction(match["number"]) * (Fraction(rows, 100) if match["percent"] else 1)
    return count <= most


def wait_ns(experiment_meta: Mapping[str, object]) -> int:
    """The deliberate wait of the experiment's function, ns; 0 if it has none."""
    value = experiment_meta.get("wait_ns")
    return int(value) if isinstance(value, int) else 0


def warnings(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Warnings for readers of these summaries, as sentences, in the order of experiments."""
    sentences = []
    for name, summary in summaries.items():
        # Those that a client decided to send.
        rows = summary["invocations"] - summary["hop_rows"]
        if rows == 0:
            sentences.append(f"{name}: no request was made.")
            continue
        if unsent := summary["unsent_rows"]:
            sentences.append(f"{name}: {unsent:,} of {rows:,} scheduled requests were never sent.")
        if summary["failed"]:
            failed = [f"{count:,} {word}" for word, count in summary["failed_outcomes"].items()]
            sentences.append(
                f"{name}: {summary['failed']:,} of {summary['invocations']:,} requests failed"
                f" ({', '.join(failed)}); they are not in its latencies."
            )
        if summary["starts"] and (unknown := summary["unknown_starts"]):
            sentences.append(
                f"{name}: the platform did not say of {unknown:,} of {summary['invocations']:,}"
                " requests how they started; the share of cold ones is of the others."
            )
        if absurd := summary["absurd_latency_rows"]:
            sentences.append(
                f"{name}: {absurd:,} of {rows:,} requests were answered before they were due, or"
                " more than a year later; they are not in its latencies."
            )
        if summary["latency_rows"] == 0:
            sentences.append(f"{name}: {untimed.why_no_latency(summary)}, so it has no latency.")
        elif summary["tmr"] is None:
            sentences.append(
                f"{name}: a request took less than the declared wait of"
                f" {summary['wait_ms']:g} ms, so it has no MR, TR or TMR."
            )
        lag = summary["lag_us"]["p99"]
        if lag is not None and lag > LAG_LIMIT_US:
            sentences.append(
                f"{name}: the generator was late: sent - scheduled has p99"
                f" {lag / 1e3:.2f} ms (limit 1 ms)."
            )
    if summaries and all(summary["mr"] is None for summary in summaries.values()):
        sentences.append(f"No experiment {BASE!r} with rows: MR and TR have no base.")
    return [*sentences, *small_samples(summaries)]


def small_samples(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Warnings about quantiles with too few rows, one sentence for each quantile."""
    sentences = []
    for name, order in QUANTILES.items():
        few = [
            f"{experiment} ({summary['latency_rows']:,})"
            for experiment, summary in summaries.items()
            if name in summary["unsupported_quantiles"]
            and summary["latency_rows"]
            and not experiment.endswith(WARMUP_SUFFIX)
        ]
        if few:
            sentences.append(
                f"{name} rests on fewer than the {minimum_rows(order)} rows that a 95 % interval"
                f" needs in {', '.join(few)}: read it there as a single observation."
            )
    return sentences


def _positive(values: Ints) -> Ints:
    """The values if all are above zero, else none of them."""
    if values.size and values[0] > 0:
        return values
    return values[:0]


def _quantile(ordered: Ints, order: Fraction) -> int:
    value = quantile(ordered, order)
    assert value is not None, "callers check that there are values"
    return value


def _by_burst_size(
    keys: pa.Table, wait: int, base: Ints | None, *, is_base: bool, seed: int
) -> list[dict[str, Any]]:
    """The same figures for each burst size, ascending, of experiments with bursts.

    A burst is the rows of one stream of one run with the same burst number, whenever they were
    scheduled (jitter spreads them). Its size is the number of these rows, whatever their outcome.
    Latency is over those with outcome ok.
    """
    if keys.num_rows == 0:
        return []
    names = ["run", "stream", "burst"]
    sizes = keys.group_by(names).aggregate([([], "count_all")])
    joined = keys.join(sizes, names)
    result = []
    for size in (int(size) for size in np.unique(columns.measured(joined.column("count_all")))):
        rows = joined.filter(pc.equal(joined.column("count_all"), size))
        latency = columns.ordered(rows.filter(rows.column("ok")).column("latency"))
        infra = _positive(latency - wait)
        result.append(
            {
                "size": size,
                "bursts": rows.num_rows // size,
                "invocations": rows.num_rows,
                "latency_rows": int(latency.size),
                "latency_ms": quantiles(latency, _NS_PER_MS),
                "latency_ci95_ms": intervals(latency, _NS_PER_MS),
                "unsupported_quantiles": unsupported(int(latency.size)),
                **stellar_ratios(infra, base, is_base=is_base, seed=seed),
            }
        )
    return result
