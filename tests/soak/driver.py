"""One state folder under load, and a platform on it that is killed again and again."""

import random
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lambda_api.conftest import cgroups, instances, mounts

from .clients import COPIED, Client, Deployer, Gate, Invoker, Upstream, deploy_steady
from .engine import Connection, Engine
from .ledger import Ledger, Row, disagreements, is_done
from .tears import cut

CONFIG = {
    "event_retry_ms": 50,
    "keep_alive_ms": 1_000,
    "pause_after_ms": 5,
    "max_instances": 12,
    "pool": 1,
    "shutdown_grace_ms": 1_000,
}
_INVOKERS = 4
_DEPLOYERS = 2
_LOAD_S = (0.05, 1.5)
# Without any event ending in it, those that are left are lost.
_PROGRESS_TIMEOUT_S = 60.0
_COPIES_TIMEOUT_S = 60.0


@dataclass
class Soak:
    """Kills, restarts and what came of them."""

    binary: Path
    state: Path
    seed: int
    tears: bool = False
    ledger: Ledger = field(default_factory=Ledger)
    start_s: list[float] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._gate = Gate()
        self._engine: Engine | None = None
        # Rows as they were when they were first read, in order.
        self._seen: list[tuple[str, int, str]] = []
        self._last = 0

    def run(self, kills: int) -> list[str]:
        """Kill so many times; then drain, stop and look. Returns what is wrong."""
        clients: list[Client] = [
            *(Invoker(f"i{n}", self._gate, self.ledger, self.seed) for n in range(_INVOKERS)),
            *(Deployer(f"d{n}", self._gate, self.ledger, self.seed) for n in range(_DEPLOYERS)),
        ]
        try:
            self._start()
            for client in clients:
                client.thread.start()
            for _ in range(kills):
                time.sleep(self.random.uniform(*_LOAD_S))
                self._end()
                self._start()
            time.sleep(_LOAD_S[1])
            self._wait_for_copies()
            self._gate.close()
            for client in clients:
                client.thread.join(timeout=90)
                if client.thread.is_alive():
                    self.ledger.problem(f"client {client.name} waits for an answer for ever")
            return self._finish([it for it in clients if isinstance(it, Deployer)])
        finally:
            self._gate.close()
            if self._engine is not None:
                self._engine.stop()

    def _start(self) -> None:
        before = set(instances(self.state))
        self._engine = engine = Engine(self.binary, self.state, CONFIG)
        engine.wait_ready()
        self.start_s.append(engine.start_s)
        if left := before.intersection(instances(self.state)):
            self.ledger.problem(f"processes of an earlier worker: {left}")
        with closing(Connection()) as connection:
            deploy_steady(connection, engine.address)
        self._look(engine)
        self._gate.open(Upstream(engine.address, self.ledger.era))

    def _wait_for_copies(self) -> None:
        """Go on until functions with a zygote have had copies: a busy machine makes it slowly."""
        assert self._engine is not None
        deadline = time.monotonic() + _COPIES_TIMEOUT_S
        while time.monotonic() < deadline:
            rows, _ = self._engine.rows(after=0)
            starts = {(row["function"], row["start"]) for row in rows}
            served = {function for function, _ in starts}
            if all((it, "restored") in starts for it in COPIED if it in served):
                return
            time.sleep(0.5)

    def _look(self, engine: Engine) -> None:
        """Read the rows after those seen before, as a client that polls does."""
        rows, self._last = engine.rows(after=self._last)
        self._seen += _pairs(rows)

    def _end(self) -> None:
        """End the platform in one of several ways, so that the next can start."""
        engine = self._engine
        assert engine is not None
        kind = self.random.choices(
            ["kill", "stop", "stop and kill", "kill during the start"], [7, 1, 1, 1]
        )[0]
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        if kind.startswith("stop"):
            engine.terminate()
        if kind == "stop":
            if (code := engine.stop()) != 0:
                self.ledger.problem(f"it ended with {code}: {engine.log_tail()}")
            if left := [*instances(self.state), *cgroups(self.state)]:
                self.ledger.problem(f"a stop left behind: {left}")
        else:
            if kind == "stop and kill":
                time.sleep(self.random.uniform(0, 0.5))
            engine.kill()
        self._gate.shut()
        if kind == "kill during the start":
            for _ in range(self.random.randint(1, 3)):
                starting = Engine(self.binary, self.state, CONFIG)
                time.sleep(self.random.uniform(0, self.start_s[-1] * 1.2))
                starting.kill()
        if self.tears and kind != "stop":
            self._tear()

    def _tear(self) -> None:
        """Cut the end off a journal: whatever was promised before may be lost."""
        names = ["meter.sqlite-wal", "registry.sqlite-wal"]
        # The last may be one that is made ready for later.
        files = [file for file in sorted((self.state / "journal").glob("*")) if file.stat().st_size]
        names += [str(file) for file in files[-1:]] * 2
        if not cut(self.state / self.random.choice(names), self.random):
            return
        self.kinds["tear"] = self.kinds.get("tear", 0) + 1
        self.ledger.era += 1
        self._seen.clear()
        self._last = 0

    def _finish(self, deployers: list[Deployer]) -> list[str]:
        engine = self._engine
        assert engine is not None
        rows = self._drain(engine)
        for deployer in deployers:
            if deployer.era == self.ledger.era:
                deployer.confirm(Upstream(engine.address, self.ledger.era))
            deployer.connection.close()
        result = [] if engine.stop() == 0 else [f"it did not stop: {engine.log_tail()}"]
        with closing(sqlite3.connect(self.state / "meter.sqlite")) as log:
            log.row_factory = sqlite3.Row
            logged = [dict(row) for row in log.execute("SELECT * FROM invocations ORDER BY id")]
            served = [dict(row) for row in log.execute("SELECT * FROM instances")]
            result += _of_database(log)
        # Events that nobody waits for (their function was deleted, their promise was torn off) may
        # run between the last reading and the stop.
        for before in (self._seen, _pairs(rows)):
            if _pairs(logged)[: len(before)] != before:
                result.append("rows that were read before are others now")
        result += disagreements(self.ledger, logged, served)
        for function in COPIED:
            starts = [row["start"] for row in logged if row["function"] == function]
            if starts and "restored" not in starts:
                result.append(f"no instance of {function} was a copy of another: {starts}")
        return result + self._left_behind()

    def _drain(self, engine: Engine) -> list[Any]:
        """Wait until every accepted event has run; return all rows."""
        logged: dict[str, list[Any]] = {}
        promised, last = self.ledger.promised(), 0
        deadline = time.monotonic() + _PROGRESS_TIMEOUT_S
        while promised and time.monotonic() < deadline:
            rows, last = engine.rows(after=last)
            for row in rows:
                logged.setdefault(row["invocation"], []).append(row)
            left = {name for name in promised if not is_done(logged.get(name, []))}
            if len(left) < len(promised):
                promised, deadline = left, time.monotonic() + _PROGRESS_TIMEOUT_S
            time.sleep(0.2)
        # Events of functions that were deleted may still run.
        while engine.health()["instances"]["busy"] and time.monotonic() < deadline:
            time.sleep(0.1)
        return engine.rows()[0]

    def _left_behind(self) -> list[str]:
        left = {
            "processes": instances(self.state),
            "control groups": cgroups(self.state),
            "mounts": mounts(self.state),
            "staging": list((self.state / "staging").iterdir()),
        }
        with closing(sqlite3.connect(self.state / "registry.sqlite")) as registry:
            used = {str(row[0]) for row in registry.execute("SELECT code_sha256 FROM functions")}
        stored = {path.stem for path in (self.state / "packages").iterdir()}
        unpacked = {path.name for path in (self.state / "code").iterdir()}
        left["packages of no function"] = sorted((stored | unpacked) - used)
        return [f"left behind: {what}: {items}" for what, items in left.items() if items]


def _pairs(rows: Iterable[Row]) -> list[tuple[str, int, str]]:
    return [(row["invocation"], row["attempt"], row["outcome"]) for row in rows]


def _of_database(log: sqlite3.Connection) -> Iterator[str]:
    (check,) = log.execute("PRAGMA integrity_check").fetchone()
    if check != "ok":
        yield f"the log is damaged: {check}"
    for table in ("invocations", "instances"):
        ids = [row[0] for row in log.execute(f"SELECT id FROM {table} ORDER BY id")]
        # An instance's row gets a new id with each change: when it starts, is ready, ends.
        if ids and ids[-1] > 4 * len(ids):
            yield f"{table}: ids go up to {ids[-1]} for {len(ids)} rows"
        if table == "invocations" and ids != list(range(1, len(ids) + 1)):
            yield "ids of invocations have gaps"
    living = log.execute("SELECT count(*) FROM instances WHERE ended IS NULL").fetchone()[0]
    if living:
        yield f"{living} instances have no end"


@contextmanager
def soak(binary: Path, state: Path, seed: int, *, tears: bool = False) -> Iterator[Soak]:
    """A soak of one state folder; what it says when it ends badly names the seed."""
    run = Soak(binary, state, seed, tears)
    yield run
    starts = sorted(run.start_s)
    print(
        f"seed {seed}: {run.kinds}, {len(run.ledger.sent)} requests; serving again after "
        f"{starts[len(starts) // 2]:.2f} s (median), {starts[-1]:.2f} s (most)"
    )
