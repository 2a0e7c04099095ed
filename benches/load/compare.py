"""Uncia's load generator and its peers side by side: same machine, same server, same load.

    .venv/bin/python benches/load/compare.py timing [--rate 5000] [--seconds 60] [--realtime]
    .venv/bin/python benches/load/compare.py throughput [--server hello|nginx] [--open-rate N]
    .venv/bin/python benches/load/compare.py burst [--size 500]
    .venv/bin/python benches/load/compare.py stall [--rate 1000] [--after 3] [--for 2]
    .venv/bin/python benches/load/compare.py memory [--requests 10000000] [--rate 30000]

Each contender runs once per round (--rounds), one round after the other; figures are medians with
the range beside them. Before each run the machine is watched for a second; runs that began on a
busy machine are counted and said. What could not be run is in the table with its reason.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import measures
import servers
import tables
from generators import PEERS, Failed, Peer
from machine import Quiet, describe
from uncia_load import Uncia

from uncia import engine


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--rounds", type=int, default=3, help="runs of each contender")
    common.add_argument("--connections", type=int, default=50)
    common.add_argument("--engine", type=Path, help="uncia-engine (default: the installed one)")
    common.add_argument("--peers", type=Path, help="the folder that peers.sh filled")
    common.add_argument("--only", help="contenders whose names contain this")
    common.add_argument("--wire", type=Path, help="benches/load/wire, built (default: build it)")
    common.add_argument("--work", type=Path, help="folder for temporary files")
    common.add_argument("--json", type=Path, help="write every run's figures to this file")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, seconds: int | None, rate: int | None) -> argparse.ArgumentParser:
        made = commands.add_parser(name, parents=[common])
        if seconds is not None:
            made.add_argument("--seconds", type=int, default=seconds, help="length of each run")
        if rate is not None:
            made.add_argument("--rate", type=int, default=rate, help="requests per second")
        return made

    timing = command("timing", 60, 5_000)
    timing.add_argument("--realtime", action="store_true", help="Uncia with SCHED_FIFO too")
    throughput = command("throughput", 20, None)
    throughput.add_argument("--server", choices=("hello", "nginx"), default="hello")
    throughput.add_argument("--open-rate", type=int, default=50_000)
    burst = command("burst", None, None)
    burst.add_argument("--size", type=int, default=500)
    burst.add_argument("--bursts", type=int, default=5)
    burst.add_argument("--interval", type=int, default=2, help="seconds between bursts")
    stall = command("stall", 10, 1_000)
    stall.add_argument("--after", type=int, default=3, help="seconds until the stall")
    stall.add_argument("--for", type=int, default=2, dest="length", help="seconds of the stall")
    memory = command("memory", None, 30_000)
    memory.add_argument("--requests", type=int, default=10_000_000)
    return parser.parse_args()


def contenders(options: argparse.Namespace, setting: measures.Setting) -> list[measures.Contender]:
    match options.command:
        case "timing":
            return measures.timing(setting, options.realtime)
        case "throughput":
            return measures.throughput(setting, options.server == "nginx", options.open_rate)
        case "burst":
            return measures.burst(setting, options.size, options.bursts, options.interval)
        case "stall":
            return measures.stall(setting, options.after, options.length)
        case _:
            return measures.memory(setting, options.requests)


def attempt(contender: measures.Contender, work: Path | None) -> dict[str, Any]:
    """One run: its figures, or under "unable" why there are none; and how quiet the machine was."""
    quiet = Quiet.watch()
    record: dict[str, Any] = {"contender": contender.label, "before": asdict(quiet)}
    record["quiet"] = quiet.is_quiet
    with tempfile.TemporaryDirectory(prefix="uncia-bench-", dir=work) as folder:
        try:
            ran, result = contender.measure(Path(folder))
        except (servers.Missing, Failed) as error:
            return {**record, "unable": str(error)}
    during = {"idle": ran.idle, "steal": ran.steal}
    used = {"cpu_s": ran.cpu_s, "elapsed_s": ran.elapsed_s, "peak_bytes": ran.peak_bytes}
    return {**record, "during": during, "process": used, "figures": result}


def report(record: dict[str, Any], place: str) -> None:
    """A line on standard error, so that a long comparison can be followed."""
    before = record["before"]
    noise = f"idle before {before['idle']:.0%}, stolen {before['steal']:.0%}"
    if not record["quiet"]:
        noise += " (NOT QUIET)"
    message = record.get("unable")
    if message is None:
        message = ", ".join(
            f"{name} {value:,.6g}" for name, value in record["figures"].items() if value is not None
        )
    print(f"{place} {record['contender']}: {noise}: {message}", file=sys.stderr, flush=True)


def versions(uncia: Uncia, peers: Sequence[Peer]) -> dict[str, str]:
    """A line for each generator; of one that is missing, that it is."""
    result = {"uncia": uncia.version()}
    for peer in peers:
        try:
            result[peer.name] = peer.version()
        except servers.Missing as error:
            result[peer.name] = str(error)
    return result


def main() -> None:
    options = parse()
    uncia = Uncia((options.engine or engine.binary()).resolve())
    if not os.access(uncia.engine, os.X_OK):
        raise SystemExit(f"{uncia.engine} is not an executable file")
    folder = None if options.peers is None else options.peers.resolve()
    peers = [peer(folder) for peer in PEERS]
    setting = measures.Setting(
        wire=(options.wire or servers.build_wire()).resolve(),
        uncia=uncia,
        peers=peers,
        seconds=getattr(options, "seconds", 0),
        rate=getattr(options, "rate", 0),
        connections=options.connections,
    )
    chosen = [
        contender
        for contender in contenders(options, setting)
        if options.only is None or options.only in contender.label
    ]
    records = []
    for number in range(1, options.rounds + 1):
        for contender in chosen:
            record = {"round": number, **attempt(contender, options.work)}
            report(record, f"{number}/{options.rounds}")
            records.append(record)
    machine, named = describe(), versions(uncia, peers)
    print(tables.render(options.command, records, machine, named))
    if options.json is not None:
        asked = {name: str(value) for name, value in vars(options).items() if value is not None}
        whole = {"options": asked, "machine": machine, "versions": named, "runs": records}
        options.json.write_text(json.dumps(whole, indent=2) + "\n")


if __name__ == "__main__":
    main()
