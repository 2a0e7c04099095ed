"""The engine's monitors beside something: a process that watches until it is stopped."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from uncia import engine
from uncia.errors import UnciaError

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal[
    "machine",
    "cgroup",
    "pressure",
    "perf",
    "block",
    "schedule",
    "resctrl",
    "command",
    "bpftrace",
]
PROGRAMS: Final = ("command", "bpftrace")
"""Monitors that run a program of the user's, and take no control groups."""

KINDS: Final[tuple[str, ...]] = tuple(kind for kind in get_args(Kind) if kind not in PROGRAMS)
"""Monitors that need nothing else to be said."""

QUIET_KINDS: Final = tuple(kind for kind in KINDS if kind != "resctrl")
"""Those that only look: ``resctrl`` moves threads into groups that it makes."""

Format = Literal["json", "perf", "pqos", "blkparse"]
"""What the program of a monitor `command` prints."""

INTERVAL_NS: Final = 100_000_000
"""Between two samples, unless something else is asked for."""

SHORTEST_INTERVAL_NS: Final = 1_000_000
"""The engine takes no shorter ones."""

INSTANCES: Final = ("/**/uncia-*/*",)
"""Patterns of the control groups of the embedded platform's instances."""

_OF_GROUPS: Final = ("cgroup", "pressure", "perf", "schedule")
"""Monitors that have rows of every control group that they see."""

_IN_OTHER_TREES: Final = (
    "they are in trees of version 1, and the kernel has these counters for groups in that of"
    " version 2 alone"
)

_START_TIMEOUT_S: Final = 30
_END_TIMEOUT_S: Final = 10
_PROGRAMS_TIMEOUT_S: Final = 70
"""What programs of a monitor may take besides to begin or to end, and what is run after the end."""


@dataclass(frozen=True)
class Host:
    """A machine on which monitors watch.

    Attributes:
        url: ``ssh://user@host:port``; None: this machine.
        engine: the path of the engine there; None: a copy of the one here.
    """

    url: str | None = None
    engine: str | None = None


@dataclass(frozen=True)
class Asked:
    """A monitor that is asked for.

    Attributes:
        monitor: which.
        interval_ns: between two samples.
        groups: patterns of the control groups that it watches.
        name: what rows call it, if not by its kind.
        budget: the share of a CPU that it may use; beyond, its interval becomes longer.
        command: of the kind ``command``: the program that prints, and its arguments.
        format: what that prints.
        start: of ``command``: a program that is started at the beginning, and ended.
        after: of ``command``: a program that is run after the end.
        root: of ``resctrl``: where its file system is, if not where it is mounted.
        limits: of ``resctrl``: ``llc_bytes``, ``ways`` or ``mask``, and ``bandwidth_percent``.
        program: of ``bpftrace``: the text of the program.
        file: of ``bpftrace``: what sentences call the program.
        hosts: the machines on which it watches; none: on this one.
    """

    monitor: str
    interval_ns: int = INTERVAL_NS
    groups: Sequence[str] = ()
    name: str | None = None
    budget: float | None = None
    command: Sequence[str] | None = None
    format: str = "json"
    start: Sequence[str] | None = None
    after: Sequence[str] | None = None
    root: str | None = None
    limits: Mapping[str, Any] | None = None
    program: str | None = None
    file: str | None = None
    hosts: Sequence[Host] = ()

    @property
    def row_name(self) -> str:
        """What rows call it."""
        return self.name or self.monitor

    def within(self, experiment: str) -> Asked:
        """It under a name that tells its rows from those of other experiments."""
        return replace(self, name=f"{experiment}.{self.row_name}")

    @property
    def config(self) -> dict[str, Any]:
        """As the engine takes it."""
        config = {key: value for key, value in vars(self).items() if value is not None}
        del config["hosts"]
        return config | {"groups": list(self.groups)}


def start_timeout_s(asked: Sequence[Asked]) -> float:
    """How long monitors may take to start, in seconds: one after the other."""
    return _START_TIMEOUT_S + _PROGRAMS_TIMEOUT_S * _programs(asked)


def end_timeout_s(asked: Sequence[Asked]) -> float:
    """How long monitors may take to end, in seconds: one after the other."""
    return _END_TIMEOUT_S + _PROGRAMS_TIMEOUT_S * _programs(asked)


def _programs(asked: Sequence[Asked]) -> int:
    return sum(each.monitor in PROGRAMS for each in asked)


@dataclass
class Monitors:
    """Monitors while they watch.

    They end with this process, however that ends: the engine watches for the end of its input.

    Attributes:
        watching: which of those asked for work here.
        sentences: what a reader of the rows should know: what does not work here, and why.
    """

    watching: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None
    _started: threading.Event = field(default_factory=threading.Event)
    _reader: threading.Thread | None = None
    _error: str | None = None
    _end_timeout_s: float = _END_TIMEOUT_S

    @classmethod
    def start(
        cls,
        asked: Sequence[Asked],
        out: Path,
        epoch_unix_ns: int,
        *,
        run: str | None = None,
        ours: Sequence[int] = (),
    ) -> Monitors:
        """Start them, and wait until they watch.

        Args:
            asked: which, how often and of which groups.
            out: the stream of their rows (``*.arrows``), which must not exist.
            epoch_unix_ns: Unix time that times of rows are counted from.
            run: what the rows are of.
            ours: processes that, with their descendants, are not background.

        Raises:
            UnciaError: they cannot be started: the sentence of the engine.
        """
        config: dict[str, Any] = {
            "out": str(out),
            "run": run,
            "epoch_unix_ns": epoch_unix_ns,
            "ours": list(ours),
            "monitors": [each.config for each in asked],
        }
        monitors = cls()
        monitors._end_timeout_s = end_timeout_s(asked)
        process = monitors._process = subprocess.Popen(
            [str(engine.binary()), "monitor", "--until-eof"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A Ctrl-C is for us; it ends when we let it.
            process_group=0,
        )
        assert process.stdin is not None, "it is a pipe"
        try:
            process.stdin.write(json.dumps(config) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended already, and says why
        monitors._reader = threading.Thread(target=monitors._listen, daemon=True)
        monitors._reader.start()
        if not monitors._started.wait(limit := start_timeout_s(asked)):
            monitors.stop()
            raise UnciaError(f"the monitors did not start within {limit} s")
        if monitors._error is not None:
            monitors.stop()
            raise UnciaError(monitors._error)
        return monitors

    def alive(self) -> bool:
        """Whether they still watch."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> list[str]:
        """End them after a last sample; returns their sentences. May be called again."""
        process = self._process
        if process is None:
            return self.sentences
        self._process = None
        assert process.stdin is not None, "it is a pipe"
        with suppress(BrokenPipeError):  # it ended before
            process.stdin.close()
        try:
            process.wait(self._end_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.sentences.append(
                f"the monitors did not end within {self._end_timeout_s} s; their last rows are lost"
            )
        if self._reader is not None:
            self._reader.join(_END_TIMEOUT_S)
        if process.returncode != 0 and self._error is None and self._started.is_set():
            self.sentences.append(
                f"the monitors ended early (exit code {process.returncode}); rows after that are"
                " missing"
            )
        return self.sentences

    def _listen(self) -> None:
        """Take the engine's events until it ends."""
        assert self._process is not None, "it was started"
        assert self._process.stderr is not None, "it is a pipe"
        for line in self._process.stderr:
            try:
                event = json.loads(line)
            except ValueError:
                event = {"event": "error", "message": line.strip()}
            kind = event.get("event")
            if kind == "started":
                self.watching = list(event["monitors"])
                self._started.set()
            elif kind in ("unsupported", "warning"):
                self.sentences.append(f"monitor {event.get('monitor')}: {event['message']}")
            elif kind == "error":
                self._error = str(event["message"])
                self.sentences.append(f"monitors: {self._error}")
        if self._error is None and not self._started.is_set():
            self._error = "the monitors ended before they began"
        self._started.set()


def unseen(rows: pa.Table, asked: Sequence[Asked], watching: Sequence[str]) -> list[str]:
    """A sentence for each monitor that was asked to watch control groups and saw none.

    Args:
        rows: of the table ``machine``.
        asked: the monitors that were asked for.
        watching: those of them that work here.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    of_groups = rows.filter(pc.is_valid(rows.column("cgroup")))
    seen = set(pc.unique(of_groups.column("monitor").cast(pa.utf8())).to_pylist())
    sentences = []
    for each in asked:
        name = each.row_name
        is_silent = name in watching and name not in seen
        if each.monitor not in _OF_GROUPS or not is_silent or not each.groups:
            continue
        patterns = " or ".join(each.groups)
        if "cgroup" in seen and each.monitor != "cgroup":
            sentences.append(f"{name}: it has no rows of {patterns}: {_IN_OTHER_TREES}")
        else:
            sentences.append(f"{name}: no control group is named {patterns}")
    return sentences
