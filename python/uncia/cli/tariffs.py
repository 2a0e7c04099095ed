"""``uncia tariffs``: lists and shows the catalogue of tariffs, and checks tariff files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from uncia import terminal
from uncia.cli import completion
from uncia.cli.options import AsJson
from uncia.errors import UnciaError
from uncia.providers import LAMBDA_BYTES, LAMBDA_MB

if TYPE_CHECKING:
    from uncia.tariffs.model import BillableTime, Charge, Tariff

_WIDTH = 150  # columns, unless a terminal has another width


def register(app: typer.Typer) -> None:
    """Add the commands ``tariffs list``, ``show``, ``check`` and ``rules`` to ``app``."""
    tariffs = typer.Typer(
        help="What platforms charge: a catalogue of tariffs, and a check of your own.",
        no_args_is_help=True,
    )
    app.add_typer(tariffs, name="tariffs")

    @tariffs.command("list")
    def list_tariffs(
        as_json: AsJson = False,
    ) -> None:
        """List the tariffs that ship with Uncia."""
        from uncia.tariffs import get, ids

        catalogue = [get(name) for name in ids()]
        if as_json:
            dumps = [tariff.model_dump(mode="json") for tariff in catalogue]
            typer.echo(json.dumps(dumps, indent=2))
        else:
            _print_list(catalogue)

    @tariffs.command()
    def show(
        tariff: str = typer.Argument(
            metavar="ID", help="A tariff's id, or a file.", autocompletion=completion.tariffs
        ),
        as_yaml: bool = typer.Option(False, "--yaml", help="Print its file, to copy and change."),
        as_json: AsJson = False,
    ) -> None:
        """Show one tariff: what it bills, at what price, according to which source."""
        from uncia.tariffs import find, yaml_text

        if as_yaml:
            typer.echo(yaml_text(tariff), nl=False)
        elif as_json:
            typer.echo(json.dumps(find(tariff).model_dump(mode="json"), indent=2))
        else:
            _print_tariff(find(tariff))

    @tariffs.command()
    def check(
        files: list[Path] = typer.Argument(metavar="FILE...", help="Tariff files (YAML)."),
    ) -> None:
        """Check tariff files; an error names the line, the key and what is allowed."""
        from uncia.tariffs import read

        broken: list[str] = []
        for file in files:
            try:
                tariff = read(file)
            except UnciaError as error:
                broken.append(str(error))
                continue
            typer.echo(f"{file}: {tariff.id} is a well-formed tariff; {_verdict(tariff)}")
            for doubt in tariff.doubts():
                typer.echo(f"warning: {file}: {doubt}", err=True)
        if broken:
            raise UnciaError("\n".join(broken))

    @tariffs.command()
    def rules() -> None:
        """List the rules that a tariff can have for its time and for the amounts of its charges.

        They are keys of a tariff file, applied in this order, whatever their order in the file.
        """
        _print_rules()


def _verdict(tariff: Tariff) -> str:
    if tariff.unpriced_figures:
        return f"it cannot bill yet: no price for {' and '.join(tariff.unpriced_figures)}"
    if tariff.by_instance:
        return "it bills the time of instances, as `uncia cost instances` prices it"
    return f"a million invocations of 100 ms at 1 vCPU and {LAMBDA_MB} MB cost {_example(tariff)}"


def _example(tariff: Tariff) -> str:
    """An example bill, which the author of the file can compare with the platform's calculator."""
    import pyarrow as pa

    from uncia.tariffs import bill
    from uncia.units import MICRO_PER_VCPU, NS_PER_MS

    row = {
        "outcome": "ok",
        "start": "warm",
        "execution": 100 * NS_PER_MS,
        "allocated_cpu": MICRO_PER_VCPU,
        "allocated_memory": LAMBDA_BYTES,
        "cpu_user": 100 * NS_PER_MS,
        "cpu_system": 0,
        "memory_avg": LAMBDA_BYTES,
    }
    line = bill(pa.Table.from_pylist([row]), [tariff])[0]
    if line.cost_usd_per_million is None:
        return f"nothing that could be computed ({', '.join(line.unpriced)})"
    return f"{float(line.cost_usd_per_million):.6g} USD, all of it used"


def _print_list(tariffs: list[Tariff]) -> None:
    from rich.table import Table

    from uncia.cli.cost.options import plain_console

    console = plain_console(_WIDTH)
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "as of", "billed time", "vCPU", "memory", "fee"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what is billed")
    for tariff in tariffs:
        table.add_row(
            tariff.id,
            tariff.as_of.isoformat(),
            tariff.time.kind,
            _prices(tariff, "cpu"),
            _prices(tariff, "memory"),
            tariff.fee.price or "unknown",
            tariff.summary,
        )
    terminal.show(console, table)
    console.print(
        "vCPU: USD a vCPU-second, memory: USD a GB-second (or an hour, marked /h), fee: USD an"
        " invocation.\nTariffs billed by instance are listed, and `uncia bill` refuses them.",
        style="dim",
    )


def _print_rules() -> None:
    from rich.markup import escape
    from rich.table import Table

    from uncia.cli.cost.options import plain_console
    from uncia.tariffs.rules import KINDS

    table = Table(box=None, pad_edge=False)
    for heading in ("key", "of"):
        table.add_column(heading, no_wrap=True)
    table.add_column("what is billed of a")
    for kind in KINDS:
        of = " and ".join(word for word in ("time", "amount") if word in kind.of)
        table.add_row(kind.key, of, escape(kind.summary()))
    plain_console(_WIDTH).print(table)


def _prices(tariff: Tariff, resource: str) -> str:
    prices = [_price(charge) for charge in tariff.charges if charge.resource == resource]
    if resource == "cpu" and not prices:
        machines = [charge for charge in tariff.charges if charge.resource == "instance"]
        prices = [f"{_price(charge)} a machine" for charge in machines]
    return ", ".join(dict.fromkeys(prices)) or "-"


def _price(charge: Charge) -> str:
    if charge.price is None:
        return "unknown"
    return f"{charge.price}{'/h' if charge.per.endswith('-hour') else ''}"


def _print_tariff(tariff: Tariff) -> None:
    from rich.table import Table

    from uncia.cli.cost.options import plain_console

    console = plain_console(_WIDTH)
    console.print(f"{tariff.id}: {tariff.provider}, {tariff.product}", style="bold")
    console.print(tariff.summary)
    facts = Table(box=None, pad_edge=False, show_header=False)
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    region = tariff.region or "any region"
    facts.add_row(
        "as of",
        f"{tariff.as_of.isoformat()}, {region}, {tariff.architecture}, {tariff.currency}",
    )
    facts.add_row("billed time", _time(tariff.time))
    for charge in tariff.charges:
        facts.add_row(f"{charge.resource} {charge.basis}", _charge(charge))
    facts.add_row("fee", f"{tariff.fee.price or 'unknown'} an invocation{_citation(tariff.fee)}")
    if tariff.idle is not None:
        price = f"{tariff.idle.price} per {tariff.idle.per} of memory"
        facts.add_row("idle for hints", f"{price}{_citation(tariff.idle)}")
    facts.add_row("sizes", f"{tariff.sizes.rule}{_citation(tariff.sizes)}")
    if tariff.free_tier is not None:
        facts.add_row("free tier", f"{_free(tariff)} (not taken off bills)")
    for note in tariff.notes:
        facts.add_row("note", note)
    for name, source in tariff.sources.items():
        accessed = f" ({source.accessed.isoformat()})" if source.accessed else ""
        facts.add_row(f"source {name}", f"{source.citation}{accessed} {source.url or ''}".strip())
    console.print(facts)


def _time(time: BillableTime) -> str:
    from uncia.units import format_duration

    parts: list[str] = [time.kind]
    parts += time.rules.words(format_duration)
    if time.minimum_all is not None:
        parts.append(f"at least {format_duration(time.minimum_all)} for all together")
    return ", ".join(parts) + _citation(time)


def _charge(charge: Charge) -> str:
    parts = [f"{charge.price or 'unknown price'} per {charge.per}"]
    if charge.amount is not None:
        parts.append(charge.amount)
    parts += [rule.words(getattr(charge, rule.key)) for rule in charge.rules.rules]
    if charge.is_credit:
        parts.append("a credit")
    if charge.when != "always":
        parts.append(f"if {charge.when.replace('_', ' ')}")
    return ", ".join(parts) + _citation(charge)


def _citation(figure: object) -> str:
    """The source of a figure, and its note."""
    note, source = getattr(figure, "note", None), getattr(figure, "source", "")
    return f" [{source}]" if note is None else f" [{source}]. {note}"


def _free(tariff: Tariff) -> str:
    free = tariff.free_tier
    if free is None:
        return "none"
    parts = [
        f"{value:,} {unit}"
        for value, unit in (
            (free.requests, "requests"),
            (free.vcpu_seconds, "vCPU-s"),
            (free.gb_seconds, "GB-s"),
        )
        if value is not None
    ]
    return f"{', '.join(parts)} a {free.per}"
