"""Uncia's load generator among the compared: its engine, run as any other program."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from generators import GRACE_S, Asked, Failed, Figures, Generator
from machine import Run, run

from uncia.units import NS_PER_S

SEED = 7
ROWS = "rows.arrows"


@dataclass(frozen=True)
class Uncia(Generator):
    """The engine with some settings.

    Attributes:
        engine: the binary ``uncia-engine``.
        name: what the settings are called in tables.
        arrivals: of an open loop: "constant" or "poisson".
        settings: further keys of the configuration.
        process: the arrival process as the engine takes it, in place of ``arrivals`` at the rate.
    """

    engine: Path
    name: str = "uncia"
    arrivals: str = "constant"
    settings: tuple[tuple[str, Any], ...] = ()
    process: tuple[tuple[str, Any], ...] = ()

    def with_settings(self, name: str, **settings: Any) -> Uncia:
        return replace(self, name=name, settings=(*self.settings, *settings.items()))

    def version(self) -> str:
        asked = subprocess.run(
            [self.engine, "--version"], capture_output=True, text=True, check=False
        )
        return asked.stdout.strip() or f"{self.engine.name} of unknown version"

    def config(self, asked: Asked, folder: Path) -> dict[str, Any]:
        """The engine's configuration. Rows go to ROWS; Parquet is not made of them unless set."""
        duration = asked.seconds * NS_PER_S
        stream: dict[str, Any] = {
            "function": "hello",
            "targets": [{"function": "hello", "url": asked.url}],
        }
        if self.process:
            stream["arrivals"] = dict(self.process)
        elif asked.rate is None:
            stream["closed"] = {
                "clients": asked.connections,
                "think_ns": 0,
                "duration_ns": duration,
            }
        else:
            stream["arrivals"] = {
                "kind": self.arrivals,
                "rate_per_s": str(asked.rate),
                "duration_ns": duration,
            }
        return {
            "out": str(folder / ROWS),
            "seed": SEED,
            "streams": [stream],
            **dict(self.settings),
        }

    def load(self, asked: Asked, folder: Path) -> tuple[Run, Figures]:
        ran, done = self._run(self.config(asked, folder), folder, asked.seconds)
        failed = sum(done["failed"].values()) + done["unsent"]
        latency = done["latency_ms"] or {}
        return ran, Figures(done["ok"], failed, latency.get("p99"), {"rows": done["rows"]})

    def schedule(self, asked: Asked, folder: Path) -> Path:
        """The table of the schedule that ``load`` follows, by a dry run."""
        stream, table = folder / "schedule.arrows", folder / "schedule.parquet"
        config = {**self.config(asked, folder), "dry_run": True, "out": str(stream)}
        self._run(config, folder, 0)
        with pa.OSFile(str(stream), "rb") as source, pa.ipc.open_stream(source) as reader:
            pq.write_table(reader.read_all(), table)
        return table

    def _run(
        self, config: dict[str, Any], folder: Path, seconds: float
    ) -> tuple[Run, dict[str, Any]]:
        command: list[str | Path] = [self.engine, "load", "--config", "-"]
        ran = run(command, folder, seconds + GRACE_S, stdin=json.dumps(config))
        events = [json.loads(line) for line in ran.stderr.splitlines() if line.startswith("{")]
        last: dict[str, Any] = events[-1] if events else {}
        if ran.code != 0 or last.get("event") != "done":
            message = last.get("message") or ran.stderr.strip() or "nothing"
            raise Failed(f"the engine ended with code {ran.code}, and said: {message}")
        return ran, last


def read_rows(folder: Path, columns: list[str]) -> pa.Table:
    """Columns of the rows that a load left in ``folder``."""
    with pa.memory_map(str(folder / ROWS)) as source, pa.ipc.open_stream(source) as stream:
        return pa.Table.from_batches(
            (batch.select(columns) for batch in stream),
            schema=pa.schema([stream.schema.field(name) for name in columns]),
        )
