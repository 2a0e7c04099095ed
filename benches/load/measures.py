"""What is measured of the generators: contenders of each comparison, and one run of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import servers
import wire
from generators import Asked, Failed, Generator
from machine import Run
from uncia_load import Uncia, read_rows

from uncia.stats.quantiles import quantile
from uncia.units import NS_PER_S

P99 = Fraction(99, 100)
MIB = 2**20
NOWHERE = "http://127.0.0.1:1/"
"""The address in a dry run, which asks nobody."""

Found = dict[str, float | None]


@dataclass(frozen=True)
class Contender:
    """A generator in a comparison; ``measure`` carries out one run, given a folder for files."""

    label: str
    measure: Callable[[Path], tuple[Run, Found]]


@dataclass(frozen=True)
class Setting:
    """What all comparisons are told.

    Attributes:
        wire: the binary of benches/load/wire.
        uncia: the engine, without settings.
        peers: the others.
        seconds, rate, connections: of each run.
    """

    wire: Path
    uncia: Uncia
    peers: Sequence[Generator]
    seconds: int
    rate: int
    connections: int

    def asked(self, url: str, rate: int | None, in_flight: int = 0) -> Asked:
        return Asked(url, self.seconds, self.connections, rate, in_flight)


def timing(setting: Setting, realtime: bool) -> list[Contender]:
    """How exactly requests leave, judged by their arrivals at one server."""

    def contender(generator: Generator, schedule: Callable[[Path], wire.Times]) -> Contender:
        def measure(folder: Path) -> tuple[Run, Found]:
            log = folder / "arrivals.csv"
            with servers.wire(setting.wire, ["record", "--out", log]) as server:
                ran, _ = generator.load(setting.asked(server.url, setting.rate), folder)
            judged = wire.timing(wire.read_log(log), schedule(folder))
            result: Found = {
                "asked": judged.asked,
                "arrived": judged.arrived,
                "missing": judged.missing,
                "extra": judged.extra,
                "cores": ran.cpu_s / setting.seconds,
                "clock_step_us": server.summary["clock_step_ns"] / 1e3,
            }
            for clock, errors in judged.errors_us.items():
                result |= {f"{clock}_{name}_us": value for name, value in errors.items()}
            if isinstance(generator, Uncia):
                result |= _lag(folder)
            return ran, result

        return Contender(generator.name, measure)

    def even(folder: Path) -> wire.Times:
        del folder
        return wire.constant(Fraction(setting.rate), setting.seconds * NS_PER_S)

    def random(generator: Uncia) -> Contender:
        asked = setting.asked(NOWHERE, setting.rate)
        return contender(generator, lambda folder: wire.dry_run(generator.schedule(asked, folder)))

    uncia = setting.uncia
    poisson = replace(uncia, arrivals="poisson")
    result = [contender(replace(uncia, name="uncia, constant"), even)]
    result.append(random(replace(poisson, name="uncia, Poisson")))
    if realtime:
        result.append(
            contender(uncia.with_settings("uncia, constant, realtime", realtime=True), even)
        )
        result.append(random(poisson.with_settings("uncia, Poisson, realtime", realtime=True)))
    return [*result, *(contender(peer, even) for peer in setting.peers)]


def throughput(setting: Setting, nginx: bool, open_rate: int) -> list[Contender]:
    """Requests per CPU-second of the generator: closed loop, and Uncia's open loop too."""

    def contender(generator: Generator, rate: int | None) -> Contender:
        def measure(folder: Path) -> tuple[Run, Found]:
            running: AbstractContextManager[servers.Server]
            if nginx:
                running = servers.nginx(folder / "nginx")
            else:
                running = servers.wire(setting.wire, ["hello"])
            with running as server:
                ran, figures = generator.load(setting.asked(server.url, rate), folder)
            return ran, {
                "answered": figures.answered,
                "failed": figures.failed,
                "rate": figures.answered / setting.seconds,
                "per_cpu_s": figures.answered / ran.cpu_s,
                "cores": ran.cpu_s / setting.seconds,
                "p99_ms": figures.p99_ms,
                "peak_mib": ran.peak_bytes / MIB,
            }

        return Contender(generator.name, measure)

    at = f"open, {open_rate:,}/s"
    # As many connections as the peers have: an open loop opens what it takes.
    uncia = setting.uncia.with_settings(f"uncia, {at}", max_connections=setting.connections)
    return [
        contender(replace(setting.uncia, name="uncia, closed"), None),
        contender(uncia, open_rate),
        contender(uncia.with_settings(f"uncia, {at}, no spin", spin_ns=0), open_rate),
        *(contender(peer, None) for peer in setting.peers),
    ]


def burst(setting: Setting, size: int, bursts: int, interval_s: int) -> list[Contender]:
    """From the first to the last request of a burst: as sent, and as they arrived."""
    process = {
        "kind": "burst",
        "sizes": [size],
        "interval_ns": interval_s * NS_PER_S,
        "bursts": bursts,
    }

    def contender(generator: Uncia) -> Contender:
        def measure(folder: Path) -> tuple[Run, Found]:
            log = folder / "arrivals.csv"
            with servers.wire(setting.wire, ["record", "--out", log]) as server:
                ran, figures = generator.load(setting.asked(server.url, None), folder)
            rows = read_rows(folder, ["burst", "sent"])
            ends = rows.group_by("burst").aggregate([("sent", "min"), ("sent", "max")])
            spreads = pc.subtract(ends["sent_max"], ends["sent_min"]).to_numpy() / 1e6
            first = pc.equal(ends["burst"], 0)
            arrivals = wire.read_log(log)
            times = arrivals.read if arrivals.kernel is None else arrivals.kernel
            if times.size != size * bursts:
                raise Failed(f"{times.size} of {size * bursts} requests arrived")
            arrived = np.ptp(times.reshape(bursts, size), axis=1) / 1e6
            return ran, {
                "failed": figures.failed,
                "sent_first_ms": float(spreads[first.to_numpy()][0]),
                "sent_ms": float(np.median(spreads)),
                "sent_max_ms": float(spreads.max()),
                "arrived_first_ms": float(arrived[0]),
                "arrived_ms": float(np.median(arrived)),
                "arrived_max_ms": float(arrived.max()),
                "connections": float(arrivals.connections),
                "cores": ran.cpu_s / (bursts * interval_s),
            }

        return Contender(generator.name, measure)

    seconds = bursts * interval_s
    setting = replace(setting, seconds=seconds)
    uncia = replace(setting.uncia, process=tuple(process.items()))
    return [
        contender(uncia.with_settings(f"uncia, pool of {size}", connections={"pool": size})),
        contender(replace(uncia, name="uncia, no pool")),
    ]


def stall(setting: Setting, after_s: int, length_s: int) -> list[Contender]:
    """A server that answers nobody for a while: is the load kept up, and is the wait reported?"""
    # Whatever is to be sent during the stall may be waiting at its end.
    in_flight = 2 * setting.rate * length_s
    schedule = wire.constant(Fraction(setting.rate), setting.seconds * NS_PER_S)
    expected = _expected_p99_ms(schedule, after_s, length_s)

    def contender(generator: Generator) -> Contender:
        rate = setting.rate if generator.open_loop else None
        label = generator.name if generator.open_loop else f"{generator.name}, closed"

        def measure(folder: Path) -> tuple[Run, Found]:
            log = folder / "arrivals.csv"
            mode = ["stall", f"--after={after_s}", f"--for={length_s}", f"--out={log}"]
            with servers.wire(setting.wire, mode) as server:
                asked = setting.asked(server.url, rate, in_flight)
                ran, figures = generator.load(asked, folder)
            arrivals = wire.read_log(log)
            times = arrivals.read if arrivals.kernel is None else arrivals.kernel
            within = _within(times, after_s, length_s)
            result: Found = {
                "arrived": float(times.size),
                "failed": figures.failed,
                "p99_ms": figures.p99_ms,
                "expected_p99_ms": None if rate is None else expected,
                "stalled": float(within),
            }
            if rate is not None:
                judged = wire.timing(arrivals, schedule)
                errors = judged.errors_us.get("kernel", judged.errors_us.get("read", {}))
                result["asked"] = judged.asked
                result["asked_stalled"] = float(_within(schedule, after_s, length_s))
                result["error_p99_us"] = errors.get("p99")
            if isinstance(generator, Uncia):
                result |= _lag(folder)
            return ran, result

        return Contender(label, measure)

    return [contender(generator) for generator in (setting.uncia, *setting.peers)]


def memory(setting: Setting, requests: int) -> list[Contender]:
    """The most memory that the engine holds over a long history."""
    seconds = -(-requests // setting.rate)
    setting = replace(setting, seconds=seconds)
    uncia = setting.uncia

    def measure(folder: Path) -> tuple[Run, Found]:
        with servers.wire(setting.wire, ["hello"]) as server:
            ran, figures = uncia.load(setting.asked(server.url, setting.rate), folder)
        return ran, {
            "rows": figures.notes["rows"],
            "failed": figures.failed,
            "peak_mib": ran.peak_bytes / MIB,
            "file_mib": sum(path.stat().st_size for path in folder.glob("rows.*")) / MIB,
            "per_cpu_s": figures.answered / ran.cpu_s,
        }

    return [Contender("uncia", measure)]


def _lag(folder: Path) -> Found:
    """Quantiles of ``sent - scheduled`` in microseconds, of the rows in ``folder``."""
    rows = read_rows(folder, ["scheduled", "sent"])
    lag = np.sort(pc.subtract(rows["sent"], rows["scheduled"]).drop_null().to_numpy())
    result = {"lag_p99_us": quantile(lag, P99), "lag_max_us": quantile(lag, Fraction(1))}
    return {name: None if value is None else value / 1e3 for name, value in result.items()}


def _within(times: npt.NDArray[np.int64], after_s: int, length_s: int) -> int:
    """How many of ``times`` fall into the stall, which counts from the first."""
    if times.size == 0:
        return 0
    start = times[0] + after_s * NS_PER_S
    return int(np.count_nonzero((times >= start) & (times < start + length_s * NS_PER_S)))


def _expected_p99_ms(schedule: wire.Times, after_s: int, length_s: int) -> float | None:
    """The p99 of latency if nothing but the stall took time: until its end, for those within."""
    end = schedule[0] + (after_s + length_s) * NS_PER_S
    stalled = (schedule >= end - length_s * NS_PER_S) & (schedule < end)
    waits = np.sort(np.where(stalled, end - schedule, 0))
    p99 = quantile(waits, P99)
    return None if p99 is None else p99 / 1e6
