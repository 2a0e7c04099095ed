"""Answers of a fan-out's branches, in the order in which they are handed on."""

import pytest

from uncia.experiment.chained import in_order_of_branches


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        # The order of the branches, not that in which the stage names them.
        ({"a": [], "b": ["a"], "c": ["a"], "d": ["c", "b"]}, ["b", "c"]),
        # The ends of longer branches, in an order of the file that is not theirs.
        (
            {"a": [], "b": ["a"], "c": ["a"], "e": ["c"], "d": ["b"], "z": ["e", "d"]},
            ["d", "e"],
        ),
        # A fan-out within a branch hands on a list of its own.
        (
            {"a": [], "b": ["a"], "c": ["a"], "d": ["b"], "e": ["b"], "z": ["d", "e", "c"]},
            None,
        ),
        # Of two fan-outs one after the other, the last counts.
        (
            {
                "a": [],
                "b": ["a"],
                "c": ["a"],
                "m": ["b", "c"],
                "x": ["m"],
                "y": ["m"],
                "z": ["y", "x"],
            },
            ["x", "y"],
        ),
        ({"a": [], "z": ["a"]}, ["a"]),
    ],
)
def test_the_order_of_branches(waits: dict[str, list[str]], expected: list[str] | None) -> None:
    assert in_order_of_branches("d" if "z" not in waits else "z", waits) == expected


class Counted(dict[str, list[str]]):
    """A mapping that may be asked so often."""

    left = 0

    def __getitem__(self, key: str) -> list[str]:
        assert self.left, "every way through the chain is followed"
        self.left -= 1
        return super().__getitem__(key)


def test_fan_outs_one_after_another_are_each_looked_at_once() -> None:
    waits = Counted({"s0": []})
    for number in range(40):
        before, here = f"s{number}", f"s{number + 1}"
        waits |= {f"b{here}": [before], f"c{here}": [before], here: [f"c{here}", f"b{here}"]}
    waits.left = 4 * len(waits)
    assert in_order_of_branches("s40", waits) == ["bs40", "cs40"]
