"""Words in messages."""

from uncia.text import plural


def test_one_is_singular() -> None:
    assert [plural(n, "row") for n in (0, 1, 1200)] == ["0 rows", "1 row", "1,200 rows"]
