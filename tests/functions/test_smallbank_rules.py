"""SmallBank's rules, without documents: what is conserved, and what is drawn."""

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncia.paths import data

_FILE = Path(data("functions")) / "smallbank" / "python" / "bank.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("smallbank_rules", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bank = _load()
CENTS = st.integers(-10_000, 10_000)


@given(transaction=st.sampled_from(bank.TRANSACTIONS), four=st.tuples(*[CENTS] * 4))
def test_money_is_made_and_lost_only_where_it_is_paid_in_or_out(
    transaction: str, four: tuple[int, int, int, int]
) -> None:
    held = four[: len(bank.balances(transaction, 0, 1))]
    changes, aborted = bank.carry_out(transaction, held, "canonical")
    assert len(changes) == len(held)
    assert all(isinstance(change, int) for change in changes)
    paid = {
        "deposit_checking": {130},
        "transact_savings": {-2_020},
        "write_check": {-500, -600},
    }.get(transaction, {0})
    assert sum(changes) in (paid if aborted is None else {0})
    if transaction in ("send_payment", "transact_savings") and aborted is None:
        assert held[0] + changes[0] >= 0
    if transaction == "amalgamate":
        assert [before + change for before, change in zip(held, changes, strict=True)] == [
            0,
            0,
            held[2],
            sum(held) - held[2],
        ]


def test_h_stores_amalgamate_does_not_conserve_money() -> None:
    changes, _ = bank.carry_out("amalgamate", (700, 20, 3_000, 5), "hstore")
    assert changes == (0, -20, -705, 0)
    assert bank.carry_out("write_check", (0, 499), "hstore")[0] == (0, -400)
    assert bank.carry_out("write_check", (0, 499), "canonical")[0] == (0, -600)


@given(seed=st.text(), accounts=st.integers(2, 50), hot=st.integers(0, 100), few=st.integers(2, 60))
def test_accounts_that_are_drawn_are_two(seed: str, accounts: int, hot: int, few: int) -> None:
    mix = "send_payment 1, amalgamate 1"
    drawn = bank.draw("mix", mix, accounts, hot, few, -1, -1, seed)
    assert drawn == bank.draw("mix", mix, accounts, hot, few, -1, -1, seed)
    _, account, other = drawn
    assert account != other
    assert 0 <= min(account, other) <= max(account, other) < accounts
    if hot == 100:
        assert max(account, other) < few


def test_with_none_that_is_hot_all_accounts_are_drawn_alike() -> None:
    drawn = Counter(
        bank.draw("balance", "balance 1", 12, 0, 10, -1, -1, f"{seed}")[1] for seed in range(1_200)
    )
    assert set(drawn) == set(range(12))
    assert max(drawn.values()) < 2 * min(drawn.values())


def test_a_mix_that_is_none_is_told() -> None:
    for text in ("steal 1", "balance", "balance x", "balance 0"):
        with pytest.raises(ValueError, match="mix: "):
            bank.weights(text)
