"""``uncia load``: load on one URL, or by a workload file."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from uncia.errors import RunFailedError, UnciaError
from uncia.text import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from uncia.experiment.loads import KeptLoad
    from uncia.interrupt import Interruption
    from uncia.stats.tails import Order
    from uncia.workload.fleet import Ended
    from uncia.workload.resolve import Prepared
    from uncia.workload.send import SendSettings

_WHEN: Final = "When requests are sent"
_WHAT: Final = "What is sent"
_CONNECTIONS: Final = "Connections"
_SIZES: Final = "What answers"
_WHO: Final = "Processes and machines"
_STOP: Final = "When to stop"
_RESULT: Final = "Results"


def _option(text: str, panel: str, *names: str, **options: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False, **options)


def register(app: typer.Typer) -> None:
    """Add the command ``load`` to ``app``."""

    @app.command()
    def load(
        target: Annotated[
            str,
            typer.Argument(
                metavar="URL|FILE", help="http://..., https://..., or a workload file (*.yaml)."
            ),
        ],
        rate: Annotated[str | None, _option("Mean rate, for example 100/s.", _WHEN)] = None,
        duration: Annotated[
            str | None, _option("How long to send, for example 10s.", _WHEN)
        ] = None,
        arrivals: Annotated[
            str | None, _option("Arrival process (default: constant).", _WHEN)
        ] = None,
        cv: Annotated[float | None, _option("Coefficient of variation of the gaps.", _WHEN)] = None,
        sizes: Annotated[
            str | None, _option("Burst sizes, taken in turn, e.g. 1,10,50.", _WHEN)
        ] = None,
        interval: Annotated[
            str | None, _option("Time from one burst to the next, e.g. 2s.", _WHEN)
        ] = None,
        bursts: Annotated[
            int | None, _option("Number of bursts (default: 1).", _WHEN, min=1)
        ] = None,
        jitter: Annotated[
            str | None, _option("Spread the requests of a burst over this time.", _WHEN)
        ] = None,
        set_: Annotated[
            list[str] | None,
            _option(
                "Any other key of the arrivals: KEY=VALUE, the value in YAML; may be repeated.",
                _WHEN,
                "--set",
            ),
        ] = None,
        closed: Annotated[
            int | None,
            _option(
                "Closed loop: number of clients, each of which waits for its answer before it"
                " sends again.",
                _WHEN,
                min=1,
            ),
        ] = None,
        think: Annotated[
            str | None,
            _option("Closed loop: think time between an answer and the next request.", _WHEN),
        ] = None,
        requests: Annotated[
            int | None, _option("Closed loop: maximum number of requests in all.", _WHEN, min=1)
        ] = None,
        seed: Annotated[
            int | None,
            _option(
                "The same seed gives the same requests (default: 1, or the file's).", _WHEN, min=0
            ),
        ] = None,
        method: Annotated[
            str | None,
            _option("HTTP method (default: GET, or POST with a body).", _WHAT, "--method", "-X"),
        ] = None,
        body: Annotated[
            str | None, _option("Request body: text, or @FILE.", _WHAT, "--body", "-d")
        ] = None,
        random_body: Annotated[
            str | None, _option("Size of an incompressible random body, e.g. 64KB.", _WHAT)
        ] = None,
        header: Annotated[
            list[str] | None,
            _option("Header, as 'Name: value'; may be repeated.", _WHAT, "--header", "-H"),
        ] = None,
        query: Annotated[
            list[str] | None, _option("Query parameter, as NAME=VALUE; may be repeated.", _WHAT)
        ] = None,
        http: Annotated[
            str | None, _option("HTTP version: 1.1, 2 or auto (default: 1.1).", _WHAT)
        ] = None,
        sign_aws: Annotated[
            str | None, _option("Sign requests with AWS SigV4 for REGION/SERVICE.", _WHAT)
        ] = None,
        unix_socket: Annotated[
            str | None, _option("Connect to this socket, not to the URL's host.", _CONNECTIONS)
        ] = None,
        insecure: Annotated[
            bool, _option("Accept any certificate.", _CONNECTIONS, "--insecure")
        ] = False,
        ca_file: Annotated[
            Path | None, _option("Certificates to trust, in PEM.", _CONNECTIONS)
        ] = None,
        connections: Annotated[
            str | None,
            _option(
                "reuse; fresh, one for each request; or pool:N, which are kept open (default:"
                " reuse).",
                _CONNECTIONS,
            ),
        ] = None,
        max_connections: Annotated[
            int | None,
            _option("Maximum number of open connections (default: no limit).", _CONNECTIONS, min=1),
        ] = None,
        timeout: Annotated[
            str | None,
            _option("Time from sending to the end of the answer (default: 60s).", _CONNECTIONS),
        ] = None,
        connect_timeout: Annotated[
            str | None, _option("Time to establish a connection (default: 5s).", _CONNECTIONS)
        ] = None,
        first_byte_timeout: Annotated[
            str | None,
            _option("Time from sending to the head of the answer (default: none).", _CONNECTIONS),
        ] = None,
        memory: Annotated[
            str | None,
            _option(
                "Memory of an instance, for bills, where answers do not say it, e.g. 512MB.", _SIZES
            ),
        ] = None,
        vcpu: Annotated[
            str | None,
            _option(
                "CPU of an instance, for bills, where answers do not say it, e.g. 0.5.", _SIZES
            ),
        ] = None,
        execution: Annotated[
            str | None,
            _option(
                "response: where no answer says how long the function ran, its response time"
                " counts, network included, so that bills are upper bounds.",
                _SIZES,
            ),
        ] = None,
        processes: Annotated[
            int, _option("Generator processes on this machine (default: 1).", _WHO, min=1)
        ] = 1,
        share: Annotated[
            str | None,
            _option("This machine's part of the load: 2/3 is the second of three machines.", _WHO),
        ] = None,
        start_at: Annotated[
            str | None, _option("When the schedule starts: 2026-05-01T12:00:00Z.", _WHO)
        ] = None,
        realtime: Annotated[
            bool | None,
            _option(
                "Send with real-time priority (default: yes as root, else no).",
                _WHO,
                "--realtime/--no-realtime",
            ),
        ] = None,
        error_budget: Annotated[
            str | None, _option("Stop when more than this share of requests failed: 5%.", _STOP)
        ] = None,
        max_lag: Annotated[
            str | None, _option("Stop when the generator's lag (p99) exceeds this.", _STOP)
        ] = None,
        max_slowdown: Annotated[
            float | None, _option("Stop when latency has grown by this factor.", _STOP)
        ] = None,
        allow_failures: Annotated[
            bool, _option("Exit 0 even if requests failed.", _STOP, "--allow-failures")
        ] = False,
        rtt_probes: Annotated[
            int | None,
            _option(
                "TCP connects before and after the load, which measure the round trip (default:"
                " 5).",
                _RESULT,
                min=0,
            ),
        ] = None,
        subtract_rtt: Annotated[
            bool,
            _option(
                "Subtract the round trip from the latencies shown; rows stay as measured.",
                _RESULT,
                "--subtract-rtt",
            ),
        ] = False,
        quantiles: Annotated[
            str | None,
            _option("Percents, e.g. 50,99,99.99 (default: 50,90,95,99,99.9,99.99).", _RESULT),
        ] = None,
        out: Annotated[
            Path | None,
            _option(
                "Folder to keep the load in as a run, with bills and a report; or a file for the"
                " rows alone: *.parquet or *.arrows.",
                _RESULT,
            ),
        ] = None,
        overwrite: Annotated[
            bool, _option("Replace an earlier run in --out.", _RESULT, "--overwrite")
        ] = False,
        dry_run: Annotated[
            bool, _option("Write the schedule to --out; send nothing.", _RESULT, "--dry-run")
        ] = False,
        as_json: Annotated[
            bool, _option("Print the summary as JSON on stdout.", _RESULT, "--json")
        ] = False,
        quiet: Annotated[bool, _option("Show no progress.", _RESULT, "--quiet", "-q")] = False,
    ) -> None:
        """Send requests at times fixed beforehand, and record each one as a row.

        Slow answers do not delay later requests, and latency counts from the scheduled time (no
        coordinated omission). Failed requests are rows too; if there are any, the exit code is 1.
        """
        from uncia.experiment import loads
        from uncia.interrupt import Interruption
        from uncia.stats import tails
        from uncia.workload import outcome
        from uncia.workload.load import machines, plan

        in_folder = out is not None and loads.is_folder(out)
        if dry_run and (out is None or in_folder):
            raise UnciaError(
                "a dry run writes the schedule: say where, with --out schedule.parquet"
            )
        options = {
            "arrivals": arrivals,
            "rate": rate,
            "duration": duration,
            "cv": cv,
            "sizes": _sizes(sizes),
            "interval": interval,
            "bursts": bursts,
            "jitter": jitter,
            "set": _settings(set_) or None,
            "closed": closed,
            "think": think,
            "requests": requests,
            "method": method,
            "body": _body(body),
            "random_body": random_body,
            "headers": _pairs("header", header, ":", "'Name: value'") or None,
            "query": _pairs("query", query, "=", "NAME=VALUE") or None,
            "http": http,
            "sign_aws": sign_aws,
            "unix_socket": unix_socket,
            "insecure": insecure or None,
            "ca_file": ca_file,
            "connections": connections,
            "max_connections": max_connections,
            "timeout": timeout,
            "connect_timeout": connect_timeout,
            "first_byte_timeout": first_byte_timeout,
            "memory": memory,
            "vcpu": vcpu,
            "execution": execution,
        }
        overrides = {
            "seed": seed,
            "rtt_probes": rtt_probes,
            "error_budget": error_budget,
            "max_lag": max_lag,
            "max_slowdown": max_slowdown,
        }
        prepared = plan(target, options, overrides, dry_run=dry_run)
        how = machines(processes, share, start_at, realtime=realtime)
        if subtract_rtt:
            outcome.one_endpoint(prepared)
        interruption = Interruption()
        with interruption.listening():
            _Command(
                target=target,
                prepared=prepared,
                how=how,
                out=out,
                in_folder=in_folder,
                overwrite=overwrite,
                quantiles=tails.orders(quantiles or tails.DEFAULT),
                subtract_rtt=subtract_rtt,
                allow_failures=allow_failures,
                as_json=as_json,
                quiet=quiet,
                interruption=interruption,
            ).run()


@dataclass(frozen=True)
class _Command:
    """One call of the command, with its options parsed."""

    target: str
    prepared: Prepared
    how: SendSettings
    out: Path | None
    in_folder: bool
    overwrite: bool
    quantiles: tuple[Order, ...]
    subtract_rtt: bool
    allow_failures: bool
    as_json: bool
    quiet: bool
    interruption: Interruption = field(repr=False)

    def run(self) -> None:
        """Send the load, print the summary, and raise what decides the exit code."""
        from uncia.experiment import loads, progress
        from uncia.workload.send import send

        prepared, kept, on_start = self.prepared, None, None
        expected = prepared.expected // self.how.share.of
        with ExitStack() as stack:
            if self.out is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="uncia-load-"))
                file = Path(folder) / "rows.parquet"
            elif self.in_folder:
                kept = stack.enter_context(
                    loads.kept(
                        prepared,
                        self.out,
                        overwrite=self.overwrite,
                        allow_failures=self.allow_failures,
                    )
                )
                prepared, file, on_start = kept.prepared, kept.rows, kept.on_start
            else:
                file = self.out
            dry_run = prepared.load.dry_run
            with progress.loading(
                self.target, prepared.sends(), expected, quiet=self.quiet or dry_run
            ) as on_event:
                ended = send(prepared, self.how, file, on_event, self.interruption, on_start)
            if dry_run:
                self._finish_dry_run(ended)
            else:
                self._finish(ended, file, kept)

    def _finish_dry_run(self, ended: Ended) -> None:
        if ended.failure is not None:
            raise ended.failure
        self._exit_if_interrupted(ended)
        rows = ended.done["rows"]
        typer.echo(f"Scheduled {plural(rows, 'request')} in {self.out}; none was sent.")

    def _finish(self, ended: Ended, file: Path, kept: KeptLoad | None) -> None:
        """Print the summary of the rows, then raise if the load ended early or requests failed."""
        summary = self._summary(ended, file) if file.exists() else None
        failures = self._failures(ended, summary)
        if kept is not None and summary is not None:
            self._conclude(kept, ended, failures)
        if ended.failure is not None:
            hint = f"The rows so far are in {self.out}." if summary and self.out else None
            raise UnciaError(
                ended.failure.message,
                hint=ended.failure.hint or hint,
                exit_code=ended.failure.exit_code,
            )
        self._exit_if_interrupted(ended)
        if summary is None:
            raise RunFailedError("the generator ended without a table")
        if failures:
            raise RunFailedError("\n".join(failures))

    def _failures(self, ended: Ended, summary: Mapping[str, Any] | None) -> list[str]:
        """What makes the load a failed one, a sentence each."""
        if ended.failure is not None:
            return [ended.failure.message]
        if ended.stopped is not None:
            return [f"stopped: {ended.stopped['message']}"]
        if summary is None:
            return []
        failures = list(summary["contradictions"])
        if summary["failed"] and not self.allow_failures:
            outcomes = ", ".join(
                f"{count:,} {name}" for name, count in summary["outcomes"].items() if name != "ok"
            )
            failures.append(
                f"{summary['failed']:,} of {summary['invocations']:,} requests failed: {outcomes}"
            )
        return failures

    def _conclude(self, kept: KeptLoad, ended: Ended, failures: list[str]) -> None:
        """Bill, summarise and report the load in its folder."""
        from uncia.experiment import progress
        from uncia.experiment.table import report_line

        reporter = progress.reporter(quiet=self.quiet)
        try:
            with self.interruption.held():
                kept.conclude(ended, failures, reporter)
        finally:
            reporter.close()
        typer.echo(report_line(kept.folder.path), err=self.as_json)

    def _summary(self, ended: Ended, file: Path) -> dict[str, Any]:
        from uncia.workload import outcome

        summary = outcome.summarise(
            outcome.read(file),
            self.prepared,
            self.how,
            ended,
            quantiles=self.quantiles,
            subtract_rtt=self.subtract_rtt,
        )
        if self.as_json:
            typer.echo(json.dumps({"target": self.target, **summary}, indent=2))
        else:
            from uncia.experiment.table import load_summary

            load_summary(summary)
        return summary

    def _exit_if_interrupted(self, ended: Ended) -> None:
        if ended.interrupted:
            raise typer.Exit(self.interruption.exit_code)


def _sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UnciaError(
            f"--sizes: {text!r} is not a list of whole numbers like 1,10,50"
        ) from error


def _settings(texts: list[str] | None) -> dict[str, Any]:
    """Keys of arrivals that have no option of their own; values are parsed as YAML."""
    from uncia import yamlio

    pairs = _pairs("set", texts, "=", "KEY=VALUE")
    return {name: yamlio.load(value, f"--set {name}").data for name, value in pairs.items()}


def _body(text: str | None) -> bytes | None:
    if text is None or not text.startswith("@"):
        return None if text is None else text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise UnciaError(f"--body: {text[1:]} cannot be read: {error.strerror or error}") from error


def _pairs(option: str, texts: list[str] | None, separator: str, form: str) -> dict[str, str]:
    """Parse the values of a repeatable option into a mapping; no name may occur twice."""
    pairs: dict[str, str] = {}
    for text in texts or []:
        name, mark, value = text.partition(separator)
        name = name.strip()
        if not mark or not name:
            raise UnciaError(f"--{option}: {text!r} is not of the form {form}")
        if name in pairs:
            raise UnciaError(f"--{option}: {name!r} is given twice")
        pairs[name] = value.strip()
    return pairs
