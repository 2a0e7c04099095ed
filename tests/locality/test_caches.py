"""Caches under cachegrind: their forms, and what is read of its files."""

import pytest

from uncia.errors import UnciaError
from uncia.locality.caches import SIZES, Cache, read_counts
from uncia.units import MIB

FILE = """desc: I1 cache:         32768 B, 64 B, 8-way associative
cmd: /usr/bin/true
events: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw
fl=file.c
fn=main
10 100 1 1 20 2 2 10 1 1
summary: 1000 30 3 200 40 4 100 50 5
"""


@pytest.mark.parametrize("size", SIZES)
def test_the_sizes_of_the_paper_can_be_simulated(size: int) -> None:
    ways = Cache(size).ways
    sets = size // (ways * 64)
    assert sets * ways * 64 == size
    assert sets & (sets - 1) == 0


def test_a_size_that_has_no_sets_is_refused() -> None:
    with pytest.raises(UnciaError, match="cannot be simulated"):
        _ = Cache(3 * MIB + 64).ways


def test_misses_of_instructions_and_data_are_added() -> None:
    counted = read_counts(FILE)
    assert (counted.instructions, counted.accesses, counted.misses) == (1000, 120, 12)


def test_a_file_without_totals_is_none() -> None:
    with pytest.raises(KeyError):
        read_counts(FILE.partition("summary")[0])
