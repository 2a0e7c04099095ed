"""The page of a run: its verdict, facts and tiles, and its sections."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from uncia import record
from uncia.report import numbers, sections
from uncia.report.data import RunData
from uncia.report.page import WRITTEN, Page, Tile
from uncia.stats.summary import BASE
from uncia.tariffs.catalogue import is_model

_NS_PER_S: Final = 1_000_000_000
_FEW: Final = "too few rows for an interval"


def page(run: RunData) -> Page:
    """Make the report of a run."""
    verdict, good = _verdict(run)
    return Page(
        title=run.title,
        kicker="Uncia run report",
        verdict=verdict,
        good=good,
        summary=str(run.meta.get("description") or ""),
        facts=list(_facts(run)),
        warnings=run.warnings,
        sections=list(sections.make_all(run)),
        tiles=_tiles(run),
        footer=(
            f"{WRITTEN} from the tables in the same folder. Quantiles are order statistics (rank"
            " ⌈n·p⌉): nothing is interpolated and nothing is trimmed. This page loads nothing from"
            " anywhere."
        ),
    )


def _verdict(run: RunData) -> tuple[str, bool]:
    """Say whether every scheduled request was sent and ended as the experiments declare."""
    summaries = run.all_summaries
    rows = sum(summary["invocations"] for summary in summaries.values())
    unsent = sum(summary["unsent_rows"] for summary in summaries.values())
    untimed = sum(summary["untimed_rows"] for summary in summaries.values())
    absurd = sum(summary["absurd_latency_rows"] for summary in summaries.values())
    # Functions or the platform caused them: no client was to send them.
    hops = sum(summary["hop_rows"] for summary in summaries.values())
    failed = sum(summary["failed"] for summary in summaries.values())
    idle = [name for name, summary in summaries.items() if summary["invocations"] == 0]
    status = str(run.meta.get("status") or run.stored.get("status") or "complete")
    problems = [f"No request was made in {', '.join(idle)}"] if idle and rows else []
    if rows == 0:
        problems.append("No request was made")
    requests = rows - hops
    if unsent:
        problems.append(f"{unsent:,} of {requests:,} requests were never sent")
    if absurd:
        problems.append(f"{absurd:,} of {requests:,} requests have absurd times")
    if failed:
        problems.append(f"{failed:,} of {rows:,} requests failed")
    if status != "complete":
        problems.append(f"the run is marked as {status}")
    if problems:
        text = "; ".join(problems)
        return f"{text[0].upper()}{text[1:]}.", False
    declared = Counter[str]()
    for summary in summaries.values():
        declared.update({k: v for k, v in summary["outcomes"].items() if k != "ok"})
    tail = ", ".join(f"{count:,} {outcome}" for outcome, count in declared.items())
    tail = f", {tail} as declared" if tail else ""
    following = f" with {hops:,} hops" if hops else ""
    if untimed:
        some = "" if untimed == requests else f" of {untimed:,} of them"
        note = f"The rows{some} have no times of a client, as those of a trace."
        return f"All {requests:,} requests{following} ended as expected{tail}. {note}", True
    return f"All {requests:,} requests{following} were sent and ended as expected{tail}.", True


def _facts(run: RunData) -> Iterator[tuple[str, str]]:
    experiment = run.meta.get("title")
    if experiment and experiment != run.title:
        yield "Experiment", str(experiment)
    if run.name != run.title:
        yield "Run", run.name
    epoch = run.meta.get("epoch_unix_ns") or record.epoch_unix_ns(run.invocations)
    if isinstance(epoch, int) and epoch > 0:
        started = datetime.fromtimestamp(epoch // _NS_PER_S, UTC)
        yield "Begun", f"{started:%Y-%m-%d %H:%M:%S} UTC"
    platforms = dict.fromkeys(p for item in run.all_summaries.values() for p in item["platforms"])
    if platforms:
        yield "Platform", ", ".join(platforms)
    yield "Experiments", str(len(run.summaries))
    yield "Requests", numbers.count(run.requests)
    if "seed" in run.meta:
        yield "Seed", str(run.meta["seed"])
    machine = _machine(run.meta.get("machine"))
    if machine:
        yield "Machine", machine
    versions = run.meta.get("versions")
    if isinstance(versions, Mapping) and "uncia" in versions:
        yield "Uncia", str(versions["uncia"])


def _machine(facts: object) -> str:
    """Summarise the machine in a few words; its section has all facts."""
    if not isinstance(facts, Mapping):
        return ""
    parts = [str(facts[key]) for key in ("cpu_model", "os") if facts.get(key)]
    if isinstance(cpus := facts.get("cpus_usable") or facts.get("cpus"), int):
        parts.insert(1 if parts else 0, f"{cpus} CPU{'s' if cpus > 1 else ''}")
    if isinstance(memory := facts.get("memory_bytes"), int):
        parts.insert(2, f"{memory / 2**30:.3g} GB")
    return ", ".join(parts)


def _tiles(run: RunData) -> list[Tile]:
    """Choose the few numbers that a reader looks for first."""
    tiles = []
    for name in (BASE, "cold"):
        summary = run.summaries.get(name)
        if summary and summary["latency_ms"]["p50"] is not None:
            latency = summary["latency_ms"]
            note = f"p99 {numbers.figure(latency['p99'])} ms"
            if "p99" in summary["unsupported_quantiles"]:
                note += f" ({_FEW})"
            if summary["mr"] is not None and summary["base"] != name:
                note += f"; median {numbers.times(summary['mr'])} that of {summary['base']}"
                if _waits(run, name):
                    note += ", both less the wait"
            tiles.append(Tile(f"{name} request", numbers.figure(latency["p50"]), "ms", note))
    tails = {k: v["tmr"] for k, v in run.summaries.items() if v["tmr"] is not None}
    sure = {k: tmr for k, tmr in tails.items() if run.summaries[k]["tmr_ci95"] is not None}
    if tails:
        worst = max(sure or tails, key=lambda name: tails[name])
        note = f"p99 / p50 in {worst}"
        if run.summaries[worst]["wait_ms"]:
            note += ", less the wait"
        if not sure:
            note += f" ({_FEW})"
        tiles.append(Tile("longest tail", numbers.figure(tails[worst]), "× median", note))
    costs = {
        name: float(totals["cost_usd_per_million"])
        for name, totals in run.tariffs.items()
        if totals.get("cost_usd_per_million") is not None and not is_model(name)
    }
    if costs:
        low, high = min(costs, key=lambda k: costs[k]), max(costs, key=lambda k: costs[k])
        tiles.append(
            Tile(
                "a million requests",
                f"{numbers.usd(costs[low])} – {numbers.figure(costs[high])}",
                "",
                f"{low} to {high}" if low != high else low,
            )
        )
    billed = {
        name: float(totals["inflation_vcpu"])
        for name, totals in run.tariffs.items()
        if totals.get("inflation_vcpu")
    }
    if billed:
        worst = max(billed, key=lambda name: billed[name])
        tiles.append(Tile("CPU billed for used", numbers.times(billed[worst]), "", worst))
    return tiles


def _waits(run: RunData, name: str) -> bool:
    """Whether an experiment's function, or that of its base, waits on purpose."""
    of_base = run.all_summaries[run.all_summaries[name]["base"]]
    return bool(run.all_summaries[name]["wait_ms"] or of_base["wait_ms"])
