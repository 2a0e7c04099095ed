"""Hops: stages of chains that functions or the platform invoked, and no client.

The client's row that began a chain is its root. Latencies of experiments are over roots; what is
said here is of the hops, and of chains as a whole. Times of the platform are compared with the
client's only of the platform on the client's own machine, whose clock is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from uncia.stats import clocks, columns
from uncia.stats.clocks import Stamps, Transfer
from uncia.stats.hop_chains import Call, Chain, Row, by_stream, calls_of
from uncia.stats.lineage import is_complete, stage_of, without_followers
from uncia.stats.summary import quantiles

_NS_PER_MS: Final = 1e6


def summarise(
    table: pa.Table, spans: pa.Table | None = None, experiment: Mapping[str, object] | None = None
) -> list[dict[str, Any]]:
    """Summarise the hops of one experiment, an entry for each chain that it has.

    Args:
        table: the invocations of the experiment.
        spans: the run's spans, with the timestamps that functions reported.
        experiment: its description in ``run.yaml``, whose ``streams`` describe their chains.

    Returns:
        Plain JSON values; an empty list if the experiment has no such chains. ``begun`` (roots),
        ``complete`` (chains of which every hop was ok), ``hops``, ``latency_ms`` (of complete
        chains, from the scheduled time to the answer; of asynchronous ones to the end of their last
        invocation) and ``stages``.
    """
    described = columns.chains_of(experiment)
    if not described:
        return []
    calls = calls_of(spans, table)
    result = []
    for stream, chains in by_stream(table, described).items():
        chain = described[stream]
        result.append(_summarise(chain, chains, calls))
    return result


def payload_times(
    table: pa.Table, spans: pa.Table, experiment: Mapping[str, object] | None
) -> tuple[list[float], int, int]:
    """The transfer times of payloads between the stages of an experiment's chains.

    Args:
        table: the invocations of the experiment.
        spans: the run's spans, with the timestamps that functions reported.
        experiment: its description in ``run.yaml``.

    Returns:
        The times, ns; how many were withheld, as the bound of the clocks exceeds them; and the
        payloads' size in bytes, 0 if they differ.
    """
    calls = calls_of(spans, table)
    times: list[float | None] = []
    sizes: set[int | None] = set()
    for stream, chains in by_stream(table, described := columns.chains_of(experiment)).items():
        stages = described[stream]["stages"]
        # Of all hops, as any between two instances bounds the offset of their clocks.
        stamped: list[tuple[Stamps, Mapping[str, Any], bool]] = []
        for hop in (hop for chain in chains for hop in chain.hops):
            stage = stages.get(stage_of(hop["stage"], described[stream]), {})
            call = calls.get(hop["invocation"])
            if call and (it := _stamps(call, hands_payload="payload" in stage)):
                stamped.append((it, stage, hop["outcome"] == "ok"))
        transfers = clocks.transfers(it for it, _, _ in stamped)
        for (it, stage, is_ok), transfer in zip(stamped, transfers, strict=True):
            if is_ok and it.payload is not None:
                times.append(transfer.time)
                sizes.add(stage["payload"])
    known = [time for time in times if time is not None]
    size = sizes.pop() if len(sizes) == 1 else None
    return known, len(times) - len(known), size or 0


def _stamps(call: Call, *, hands_payload: bool) -> Stamps | None:
    """The timestamps of a hop; a span ``transfer`` may mean anything where none is handed on."""
    handler = call.handler
    if handler is None:
        return None
    clock = call.call["clock"]
    payload = call.transfer if hands_payload else None
    return Stamps(
        pair=(str(call.call["instance"]), str(handler["instance"])),
        sent=call.call["start"],
        received=call.call["end"],
        started=handler["start"],
        ended=handler["end"],
        is_one_clock=clock == handler["clock"] and clock.startswith(clocks.KERNEL),
        payload=None if payload is None else (payload["start"], payload["end"]),
    )


def _summarise(
    described: Mapping[str, Any], chains: list[Chain], calls: Mapping[str, Call]
) -> dict[str, Any]:
    own_hops = {id(chain): without_followers(chain, described) for chain in chains}
    complete = [own_hops[id(chain)] for chain in chains if is_complete(chain, described)]
    hops = [hop for chain in chains for hop in chain.hops]
    of_chain = {id(hop) for chain in own_hops.values() for hop in chain.hops}
    stamps = {}
    for hop in hops:
        stage = described["stages"].get(stage_of(hop["stage"], described), {})
        call = calls.get(hop["invocation"])
        if call and (it := _stamps(call, hands_payload="payload" in stage)):
            stamps[hop["invocation"]] = it
    times = dict(zip(stamps, clocks.transfers(stamps.values()), strict=True))
    between = times_between(own_hops.values()) if described["kind"] == "sequence" else {}
    latencies = [
        took for chain in complete if (took := _took(chain, described["kind"])) is not None
    ]
    by_stage: dict[str, list[Row]] = {name: [] for name in described["stages"]}
    for hop in hops:
        name = stage_of(hop["stage"], described)
        if id(hop) not in of_chain and name in described["stages"]:
            name = f"{name} (by a trigger)"
        by_stage.setdefault(name, []).append(hop)
    return {
        "chain": described["name"],
        "kind": described["kind"],
        "begun": len(chains),
        "complete": len(complete),
        "hops": len(hops),
        "latency_ms": _quantiles(latencies),
        "stages": [
            _of_stage(name, of_stage, stamps, times, between)
            | _bandwidth(described["stages"].get(name, {}).get("payload"), of_stage, stamps, times)
            for name, of_stage in by_stage.items()
            if of_stage
        ],
    }


def _took(chain: Chain, kind: str) -> int | None:
    root = chain.root
    begin = root["scheduled"] if root["scheduled"] is not None else root["sent"]
    ends = [root["received"]]
    if kind == "asynchronous":
        # A root that has not said when it ended has handed on: its hops say the end.
        rows = [*([] if root["ended"] is None else [root]), *chain.hops]
        ends = [row["ended"] for row in rows]
    if begin is None or not ends or None in ends:
        return None
    return int(max(ends) - begin)


def times_between(chains: Iterable[Chain]) -> dict[str, int]:
    """From the last end of what a stage follows on to its start, by the platform's clock.

    What stands beside it in a fan-out, and what functions invoke on their own, is none of that.
    """
    between: dict[str, int] = {}
    for chain in chains:
        ends = {hop["stage"]: hop["ended"] for hop in chain.hops if hop["outcome"] == "ok"}
        for hop in chain.hops:
            before = chain.before.get(hop["stage"], ())
            known = [ends[turn] for turn in before if ends.get(turn) is not None]
            if hop["started"] is None or not known or len(known) < len(before):
                continue
            gap, name = hop["started"] - max(known), hop["invocation"]
            if gap >= 0:
                # An attempt that was preempted was the start of it.
                between[name] = min(gap, between.get(name, gap))
    return between


def _of_stage(
    name: str,
    hops: list[Row],
    stamps: Mapping[str, Stamps],
    times: Mapping[str, Transfer],
    between: Mapping[str, int],
) -> dict[str, Any]:
    good = [hop for hop in hops if hop["outcome"] == "ok"]
    timed = [times[hop["invocation"]] for hop in good if hop["invocation"] in times]
    known = [it for it in timed if it.time is not None]
    return {
        "stage": name,
        "functions": sorted({hop["function"] for hop in hops}),
        "hops": len(hops),
        "ok": len(good),
        "cold": sum(hop["start"] == "cold" for hop in hops),
        "execution_ms": _quantiles(_present(good, "execution")),
        "queued_ms": _quantiles(_present(good, "queued")),
        "overhead_ms": _quantiles(_overheads(good, stamps)),
        "between_ms": _quantiles(
            [between[hop["invocation"]] for hop in good if hop["invocation"] in between]
        ),
        "transfer_ms": _quantiles([it.time for it in known if it.time is not None]),
        "transfer_bound_ms": _quantiles([it.bound for it in known if it.bound is not None]),
        "transfers_withheld": len(timed) - len(known),
        "contradictions": sum(it.contradicts for it in timed),
    }


def _bandwidth(
    payload: int | None,
    hops: Iterable[Row],
    stamps: Mapping[str, Stamps],
    times: Mapping[str, Transfer],
) -> dict[str, float | None]:
    """The payload that a stage was handed, in bytes, and its size over the median transfer time.

    The bandwidth is withheld if the clocks' bound reaches the median, as transfer times are, and if
    half of those or more are: the short ones are withheld first, so that the median of the others
    is too long.
    """
    if payload is None:
        return {"payload_bytes": None, "bandwidth_mbps": None}
    names = [hop["invocation"] for hop in hops if hop["outcome"] == "ok"]
    handed = [times[it] for it in names if it in stamps and stamps[it].payload is not None]
    known = [it.time for it in handed if it.time is not None]
    bounds = [it.bound for it in handed if it.bound is not None]
    if 2 * len(known) <= len(handed) or not bounds or np.median(bounds) >= np.median(known) > 0:
        return {"payload_bytes": payload, "bandwidth_mbps": None}
    median = float(np.median(known))
    return {
        "payload_bytes": payload,
        "bandwidth_mbps": payload * 8 / median * 1e3 if median > 0 else None,
    }


def _present(rows: Iterable[Row], name: str) -> list[int]:
    return [row[name] for row in rows if row[name] is not None]


def _overheads(hops: Iterable[Row], stamps: Mapping[str, Stamps]) -> Iterator[int]:
    """What each call took beside its handler: both are durations, so no clocks are compared."""
    for hop in hops:
        it = stamps.get(hop["invocation"])
        if it is not None and it.is_possible:
            yield (it.received - it.sent) - (it.ended - it.started)


def _quantiles(values: Iterable[float]) -> dict[str, float | None]:
    return quantiles(np.sort(np.array(list(values), dtype=np.int64)), _NS_PER_MS)


def warnings(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Warnings for readers of these summaries (`experiments` of ``summary.json``), as sentences."""
    sentences = []
    for name, summary in summaries.items():
        for chain in summary.get("hops", []):
            contradictions = sum(stage["contradictions"] for stage in chain["stages"])
            if contradictions:
                sentences.append(
                    f"{name}: the timestamps that functions reported of {contradictions:,} hops of"
                    f" {chain['chain']} contradict each other: a clock was set, or is wrong. Their"
                    " transfer times are withheld."
                )
    return sentences
