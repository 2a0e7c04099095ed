"""Predictors, branch by branch, against others in plain Python; turns and counts of traces."""

import os
import random
import struct
import subprocess

import pytest
from branch_oracle import Branch, bimodal, gshare, words
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia.errors import UnciaError
from uncia.locality import predictions, tools

pytestmark = pytest.mark.usefixtures("cc")

PART = struct.pack("<Q", 7 << 48 | 1 << 1)
REPEATED = struct.pack("<Q", 11 << 48 | 2 << 1)

BRANCHES = st.lists(
    st.tuples(st.integers(4096, (1 << 47) - 1), st.booleans()), min_size=1, max_size=60
)


def looping(seed: int) -> list[Branch]:
    """Branches with habits: loops, ones that follow others, ones by chance; few addresses."""
    rng = random.Random(seed)
    made: list[Branch] = []
    for _ in range(400):
        address = 0x5555_5555_0000 + rng.randrange(40) * 13
        made += [(address, turn < address % 7) for turn in range(address % 7 + 1)]
        made.append((address ^ 0x4000, made[-2][1]))
        made.append((address + 3, rng.random() < 0.3))
    return made


@pytest.mark.parametrize("kilobytes", [4, 32])
@pytest.mark.parametrize("seed", [1, 2])
def test_gshare_is_another_gshare_prediction_by_prediction(kilobytes: int, seed: int) -> None:
    branches = looping(seed)
    assert predictions(f"gshare-{kilobytes}KB", words(branches)) == gshare(branches, kilobytes)


@pytest.mark.parametrize("kilobytes", [4, 32])
def test_bimodal_is_another_prediction_by_prediction(kilobytes: int) -> None:
    branches = looping(3)
    assert predictions(f"bimodal-{kilobytes}KB", words(branches)) == bimodal(branches, kilobytes)


@settings(max_examples=20)
@given(BRANCHES)
def test_any_addresses_and_outcomes_are_predicted_alike(branches: list[Branch]) -> None:
    few = [(4096 + address % 3, taken) for address, taken in branches]
    for trace in (branches, few):
        assert predictions("gshare-4KB", words(trace)) == gshare(trace, 4)


def test_words_that_are_no_branches_are_passed_over() -> None:
    branches = looping(4)[:100]
    trace = words(branches[:50]) + PART + REPEATED + words(branches[50:])
    assert predictions("gshare-32KB", trace) == gshare(branches, 32)


def test_tage_learns_what_is_beyond_the_history_of_gshare() -> None:
    loop = [(0x40_1000, turn < 39) for _ in range(300) for turn in range(40)]

    def missed(model: str) -> int:
        return sum(
            guess != taken
            for guess, (_, taken) in zip(predictions(model, words(loop)), loop, strict=True)
        )

    assert missed("gshare-32KB") >= 290, "each end of the loop"
    assert missed("tage-32KB") < 30
    assert predictions("tage-32KB", words(loop)) == predictions("tage-32KB", words(loop))


def counts(traces: list[bytes], interval: int = 10**9) -> list[list[int]]:
    """The lines of the program, of traces that are written to its descriptors."""
    pipes = [os.pipe() for _ in traces]
    process = subprocess.Popen(
        [tools.predict(), str(interval), *(str(read) for read, _ in pipes)],
        pass_fds=[read for read, _ in pipes],
        stdout=subprocess.PIPE,
        text=True,
    )
    for (read, write), trace in zip(pipes, traces, strict=True):
        os.close(read)
        assert len(trace) <= 65_536, "what a pipe holds"
        os.write(write, trace)
        os.close(write)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return [[int(value) for value in line.split()] for line in output.splitlines()]


def number(model: str) -> int:
    return [name for name, _ in tools.models(tools.predict())].index(model)


def missed(branches: list[Branch], before: list[Branch]) -> int:
    """Mispredictions of GShare of 4 KB, after others."""
    guesses = gshare([*before, *branches], 4)[len(before) :]
    return sum(guess != taken for guess, (_, taken) in zip(guesses, branches, strict=True))


def test_parts_are_counted_with_tables_that_are_kept_and_cleared() -> None:
    start, first, second = looping(5)[:900], looping(6)[:700], looping(6)[:700]
    trace = words(start) + REPEATED + PART + words(first) + PART + words(second)
    mine = [line for line in counts([trace]) if line[1] == number("gshare-4KB")]
    kept, cleared = ([line for line in mine if line[2] == state] for state in (0, 1))
    assert [line[3] for line in kept] == [0, 1, 2]
    assert [line[3] for line in cleared] == [1, 2]
    assert [line[5] for line in kept] == [900 * 5 + 7, 700 * 5 + 7, 700 * 5]
    assert kept[-1][4] == sum(line[5] for line in kept)
    assert [line[6] for line in kept] == [11, 0, 0]
    assert [line[7] for line in kept] == [900, 700, 700]
    assert [line[8] for line in kept] == [
        missed(start, []),
        missed(first, start),
        missed(second, [*start, *first]),
    ]
    assert [line[8] for line in cleared] == [missed(first, []), missed(second, [])]


def test_what_traces_have_alone_is_the_same_whatever_shares_their_turns() -> None:
    first = words(looping(7)[:500]) + PART + words(looping(8)[:500])
    other = words(looping(9)[:600]) + PART + words(looping(10)[:300]) + PART + words([(5000, True)])
    alone = [[line[1:] for line in counts([trace])] for trace in (first, other)]
    both = counts([first, other])
    for index, lines in enumerate(alone):
        assert [line[1:] for line in both if line[0] == index and line[2] != 2] == lines
    shared = [line for line in both if line[2] == 2 and line[1] == number("gshare-4KB")]
    # Turns: the starts, then the invocations; the first trace has its addresses as they are.
    assert [(line[0], line[3]) for line in shared] == [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2)]
    assert shared[0][8] == missed(looping(7)[:500], [])


def test_rows_come_with_each_interval_and_add_up() -> None:
    # More than is read at once.
    trace = words(looping(11)[:2000]) * 4
    whole = [line for line in counts([trace]) if line[2] == 0]
    split = [line for line in counts([trace], interval=1) if line[2] == 0]
    for line in whole:
        pieces = [it for it in split if it[1] == line[1]]
        assert [sum(it[at] for it in pieces) for at in range(5, 9)] == line[5:]
        assert pieces[-1][4] == line[4]


def test_a_trace_that_ends_within_a_word_is_an_error() -> None:
    read, write = os.pipe()
    os.write(write, words(looping(1)[:3]) + b"abc")
    os.close(write)
    process = subprocess.run(
        [tools.predict(), "100", str(read)], pass_fds=[read], capture_output=True, check=False
    )
    os.close(read)
    assert process.returncode == 1
    assert b"within a word" in process.stderr


def test_every_file_of_a_predictor_is_found() -> None:
    models = [name for name, _ in tools.models(tools.predict())]
    assert tools.model_names() == models
    assert {name.split("-")[0] for name in models} == {
        file.stem for file in (tools.SOURCES / "predictors").glob("*.c")
    }


def test_a_predictor_or_a_trace_that_is_none_is_refused() -> None:
    with pytest.raises(UnciaError, match="there is no predictor 'perfect'"):
        predictions("perfect", b"")
    with pytest.raises(UnciaError, match="ends within a word"):
        predictions("gshare-4KB", b"123")
    assert predictions("gshare-4KB", b"") == []
