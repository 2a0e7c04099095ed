"""Tables in terminals of several widths: nothing is lost or broken, whatever the width."""

import pytest
from rich.console import Console
from rich.table import Table

from uncia import terminal

HEADINGS = ("requests", "failed", "cold", "p50 ms", "p99 ms", "max ms", "MR", "TR", "TMR")


def numbers() -> Table:
    table = Table(title="Starts", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("experiment")
    for heading in HEADINGS:
        table.add_column(heading, justify="right")
    for name in ("warm", "bursty-cold-at-the-long-interval"):
        table.add_row(name, *(f"{position}1,234.5" for position in range(len(HEADINGS))))
    return table


def lines(table: Table, width: int, keys: int = 1) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        terminal.show(console, table, keys)
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [200, 100, 80, 60, 40])
def test_numbers_and_headings_stay_whole(width: int) -> None:
    shown = lines(numbers(), width)
    assert all(len(line) <= width for line in shown)
    words = " ".join(shown).replace("p50 ms", "p50_ms").split()
    for position, heading in enumerate(HEADINGS):
        assert heading.split()[0] in {word.split("_")[0] for word in words}
        assert words.count(f"{position}1,234.5") == 2
    # Each part says what its rows are of.
    parts = sum("experiment" in line for line in shown)
    assert sum(line.startswith("warm") for line in shown) == parts
    assert (parts > 1) == (width < 120)
    assert sum("Starts" in line for line in shown) == 1


def test_what_fits_is_as_it_was() -> None:
    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        console.print(numbers())
    assert lines(numbers(), 200) == captured.get().splitlines()


def test_text_is_folded_and_no_ladder() -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("counter", no_wrap=True)
    table.add_column("of", overflow="fold")
    table.add_column("mean", justify="right")
    counter = "block.8_0.write_within_147456ns_count"
    table.add_row(counter, "machine", "1.5")
    assert lines(table, 60)[1].split() == [counter, "machine", "1.5"]
    table.add_row("cgroup.cpu_ns", "/uncia/instances/" + "0123456789" * 4, "2.5")
    shown = lines(table, 80)
    assert max(len(line.split("  ")[-1].strip()) for line in shown) >= 3
    assert len(shown) <= 8


def test_a_table_without_columns_is_nothing() -> None:
    assert [line for line in lines(Table(), 40) if line.strip()] == []
