"""Monitors on this machine and on others, as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncia.doctor.monitors import Asked, Host, Monitors, unseen
from uncia.doctor.remote import RemoteMonitors
from uncia.doctor.ssh import Address
from uncia.errors import UnciaError

if TYPE_CHECKING:
    import pyarrow as pa

HERE = Host()


class Everywhere:
    """Monitors while they watch, each on its hosts.

    A host on which none can be started, or that is lost, costs its rows and nothing else.

    Attributes:
        sentences: what a reader of the rows should know.
        asked: on this machine.
    """

    def __init__(self) -> None:
        self.sentences: list[str] = []
        self.asked: list[Asked] = []
        self._here: Monitors | None = None
        self._there: list[tuple[RemoteMonitors, list[Asked]]] = []
        self._absent: list[Asked] = []

    @classmethod
    def start(
        cls,
        asked: Sequence[Asked],
        part: Callable[[int], Path],
        epoch_unix_ns: int,
        *,
        run: str | None = None,
        ours: Sequence[int] = (),
    ) -> Everywhere:
        """Start them, and wait until they watch.

        Args:
            asked: which, how often, of which groups, and where.
            part: the stream for rows of a host, by its number; this machine is 0.
            epoch_unix_ns: Unix time that times of rows are counted from.
            run: what the rows are of.
            ours: processes here that, with their descendants, are not background.

        Raises:
            UnciaError: they cannot be started here, or limits that are asked for cannot be set.
        """
        monitors = cls()
        hosts: dict[Host, list[Asked]] = {}
        for each in asked:
            for host in each.hosts or (HERE,):
                hosts.setdefault(host, []).append(each)
        monitors.asked = hosts.pop(HERE, [])
        # Those elsewhere first: they take longest to start, and all are to watch the same time.
        monitors._start_there(hosts, part, epoch_unix_ns, run)
        if monitors.asked:
            try:
                monitors._here = Monitors.start(
                    monitors.asked, part(0), epoch_unix_ns, run=run, ours=ours
                )
            except BaseException:
                monitors.stop()
                raise
            monitors.sentences.extend(monitors._here.sentences)
        monitors._require_limits()
        return monitors

    def _start_there(
        self,
        hosts: Mapping[Host, list[Asked]],
        part: Callable[[int], Path],
        epoch_unix_ns: int,
        run: str | None,
    ) -> None:
        """Start those of other machines, all at once."""
        begun: list[tuple[RemoteMonitors, list[Asked]]] = []
        for host, asked in hosts.items():
            try:
                there = RemoteMonitors(Address.parse(host.url or ""), host.engine)
            except ValueError as error:
                self.sentences.append(str(error))
                self._absent.extend(asked)
            else:
                begun.append((there, asked))
        if not begun:
            return

        def start(number: int) -> UnciaError | None:
            there, asked = begun[number]
            try:
                there.start(asked, part(number + 1), epoch_unix_ns, run)
            except UnciaError as error:
                return error
            except OSError as error:
                reason = error.strerror or error
                return UnciaError(f"host {there.address.name}: ssh cannot be run: {reason}")
            return None

        try:
            with ThreadPoolExecutor(len(begun)) as pool:
                try:
                    errors = list(pool.map(start, range(len(begun))))
                except BaseException:
                    # The pool waits for all, and an engine may be minutes on its way.
                    for there, _ in begun:
                        there.give_up()
                    raise
        except BaseException:
            self._there = begun
            self.stop()
            raise
        for (there, asked), why in zip(begun, errors, strict=True):
            if why is None:
                self._there.append((there, asked))
                self.sentences.extend(there.sentences)
            else:
                self.sentences.append(why.message)
                self._absent.extend(asked)

    def _require_limits(self) -> None:
        """End all if limits do not hold, without which a run would be another.

        Raises:
            UnciaError: with the sentences.
        """
        watched = [(self.asked, self.watching), (self._absent, [])]
        watched += [(asked, there.watching) for there, asked in self._there]
        for asked, watching in watched:
            for each in asked:
                name = each.row_name
                if each.limits is not None and name not in watching:
                    of_it = f"monitor {name}: "
                    self.stop()
                    sentences = [line for line in self.sentences if of_it in line]
                    raise UnciaError(
                        "; ".join(sentences or self.sentences),
                        hint="Leave out its limits to run without.",
                    )

    @property
    def watching(self) -> list[str]:
        """Which of those asked for here work."""
        return [] if self._here is None else self._here.watching

    @property
    def facts(self) -> dict[str, Any]:
        """Of other machines and their clocks, by the names that rows have."""
        return {there.address.name: there.facts for there, _ in self._there}

    def any_watching(self) -> bool:
        """Whether any that were asked for work, and still watch."""
        return any(each.alive() and each.watching for each in self._all())

    def any_alive(self) -> bool:
        """Whether any still watch."""
        return any(each.alive() for each in self._all())

    def all_alive(self) -> bool:
        """Whether all still watch that were asked for."""
        return not self._absent and all(each.alive() for each in self._all())

    def stop(self) -> list[str]:
        """End them after a last sample; returns their sentences. May be called again."""
        failed = [*self.sentences]
        with ThreadPoolExecutor(max(1, len(self._all()))) as pool:
            for sentences in pool.map(lambda each: each.stop(), self._all()):
                failed.extend(sentences)
        self.sentences = list(dict.fromkeys(failed))
        return self.sentences

    def unseen(self, rows: pa.Table) -> list[str]:
        """A sentence for each monitor that was to watch control groups and saw none."""
        import pyarrow.compute as pc

        hosts = rows.column("host").cast("string")
        sentences = unseen(rows.filter(pc.is_null(hosts)), self.asked, self.watching)
        for there, asked in self._there:
            name = there.address.name
            of_host = rows.filter(pc.equal(hosts, name))
            silent = unseen(of_host, asked, there.watching)
            sentences += [f"host {name}: {sentence}" for sentence in silent]
        return sentences

    def _all(self) -> list[Monitors | RemoteMonitors]:
        here: list[Monitors | RemoteMonitors] = [] if self._here is None else [self._here]
        return here + [there for there, _ in self._there]
