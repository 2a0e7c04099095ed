"""The page of a run: what was run, whether it worked, and the sections."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from uncia import record
from uncia.report import numbers, sections
from uncia.report.data import RunData
from uncia.report.page import WRITTEN, Page, Tile
from uncia.stats.summary import BASE

_NS_PER_S: Final = 1_000_000_000


def page(run: RunData) -> Page:
    """The whole report of a run."""
    verdict, good = _verdict(run)
    return Page(
        title=str(run.meta.get("title") or run.name),
        kicker="Uncia run report",
        verdict=verdict,
        good=good,
        summary=str(run.meta.get("description") or ""),
        facts=list(_facts(run)),
        warnings=run.warnings,
        sections=list(sections.of(run)),
        tiles=_tiles(run),
        footer=(
            f"{WRITTEN} from the tables beside this file. Quantiles are order"
            " statistics (rank ⌈n·p⌉), nothing is interpolated and nothing is trimmed. This page"
            " loads nothing from anywhere."
        ),
    )


def _verdict(run: RunData) -> tuple[str, bool]:
    """Whether every scheduled request was sent and ended as the experiments said it may."""
    summaries = run.all_summaries
    rows = sum(found["invocations"] for found in summaries.values())
    sent = sum(found["sent"] for found in summaries.values())
    failed = sum(found["failed"] for found in summaries.values())
    idle = [name for name, found in summaries.items() if found["invocations"] == 0]
    status = str(run.meta.get("status") or run.stored.get("status") or "complete")
    wrong = [f"No request was made in {', '.join(idle)}"] if idle and rows else []
    if rows == 0:
        wrong.append("No request was made")
    if sent < rows:
        wrong.append(f"{rows - sent:,} of {rows:,} requests were never sent")
    if failed:
        wrong.append(f"{failed:,} of {rows:,} requests failed")
    if status != "complete":
        wrong.append(f"the run is marked as {status}")
    if wrong:
        text = "; ".join(wrong)
        return f"{text[0].upper()}{text[1:]}.", False
    declared = Counter[str]()
    for found in summaries.values():
        declared.update({k: v for k, v in found["outcomes"].items() if k != "ok"})
    tail = ", ".join(f"{count:,} {word}" for word, count in declared.items())
    tail = f", {tail} as declared" if tail else ""
    return f"All {rows:,} requests were sent and ended as expected{tail}.", True


def _facts(run: RunData) -> Iterator[tuple[str, str]]:
    if run.name != run.meta.get("title"):
        yield "Run", run.name
    epoch = run.meta.get("epoch_unix_ns") or record.epoch_unix_ns(run.invocations)
    if isinstance(epoch, int) and epoch > 0:
        when = datetime.fromtimestamp(epoch // _NS_PER_S, UTC)
        yield "Begun", f"{when:%Y-%m-%d %H:%M:%S} UTC"
    platforms = list(
        dict.fromkeys(p for found in run.all_summaries.values() for p in found["platforms"])
    )
    if platforms:
        yield "Platform", ", ".join(platforms)
    yield "Experiments", str(len(run.summaries))
    yield "Requests", numbers.count(run.invocations.num_rows)
    if "seed" in run.meta:
        yield "Seed", str(run.meta["seed"])
    machine = _machine(run.meta.get("machine"))
    if machine:
        yield "Machine", machine
    versions = run.meta.get("versions")
    if isinstance(versions, Mapping) and "uncia" in versions:
        yield "Uncia", str(versions["uncia"])


def _machine(facts: object) -> str:
    """The machine in a few words; all of it is in its section."""
    if not isinstance(facts, Mapping):
        return ""
    words = [str(facts[key]) for key in ("cpu_model", "os") if facts.get(key)]
    if isinstance(cpus := facts.get("cpus_usable") or facts.get("cpus"), int):
        words.insert(1 if words else 0, f"{cpus} CPU{'s' if cpus > 1 else ''}")
    if isinstance(memory := facts.get("memory_bytes"), int):
        words.insert(2, f"{memory / 2**30:.3g} GB")
    return ", ".join(words)


def _tiles(run: RunData) -> list[Tile]:
    """The few numbers that a reader looks for first."""
    tiles = []
    for name in (BASE, "cold"):
        found = run.summaries.get(name)
        if found and found["latency_ms"]["p50"] is not None:
            ratio = found["mr"] if name != BASE else None
            note = f"p99 {numbers.figure(found['latency_ms']['p99'])} ms"
            if ratio is not None:
                note += f", {numbers.times(ratio)} {BASE}"
            tiles.append(
                Tile(f"{name} request", numbers.figure(found["latency_ms"]["p50"]), "ms", note)
            )
    tails = {k: v["tmr"] for k, v in run.summaries.items() if v["tmr"] is not None}
    if tails:
        worst = max(tails, key=lambda name: tails[name])
        tiles.append(
            Tile("longest tail", numbers.figure(tails[worst]), "× median", f"p99 / p50 in {worst}")
        )
    costs = _costs(run.tariffs)
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
        name: float(found["inflation_vcpu"])
        for name, found in run.tariffs.items()
        if found.get("inflation_vcpu")
    }
    if billed:
        worst = max(billed, key=lambda name: billed[name])
        tiles.append(Tile("CPU billed for used", numbers.times(billed[worst]), "", worst))
    return tiles


def _costs(tariffs: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    return {
        name: float(found["cost_usd_per_million"])
        for name, found in tariffs.items()
        if found.get("cost_usd_per_million") is not None
    }
