"""The rules of SmallBank: what each of its six transactions does to balances in whole cents.

M. Alomari, M. Cahill, A. Fekete, U. Roehm: The Cost of Serializability on Platforms That Use
Snapshot Isolation, ICDE 2008; send_payment is H-Store's, and so are the amounts, once in dollars.
"""

import random

# In cents; H-Store's are 1.3, 5.0, 20.20 and 5.0 dollars.
DEPOSIT, PAYMENT, WITHDRAWAL, CHECK = 130, 500, 2_020, 500
# What an overdraft costs beyond the check.
PENALTY = 100
# Of a balance at first: as ServerlessBench draws it, 10,000 to 50,000 dollars.
LEAST, MOST = 1_000_000, 5_000_000

TRANSACTIONS = (
    "amalgamate",
    "balance",
    "deposit_checking",
    "send_payment",
    "transact_savings",
    "write_check",
)
_OF_TWO = ("amalgamate", "send_payment")


def first_balance(key):
    """A balance when the bank is made, the same whoever asks."""
    return random.Random(key).randrange(LEAST, MOST)


def balances(transaction, account, other):
    """The balances that a transaction reads, in the order in which it is given them."""
    saving, checking = f"saving/{account}", f"checking/{account}"
    return {
        "amalgamate": (saving, checking, f"saving/{other}", f"checking/{other}"),
        "balance": (saving, checking),
        "deposit_checking": (checking,),
        "send_payment": (checking, f"checking/{other}"),
        "transact_savings": (saving,),
        "write_check": (saving, checking),
    }[transaction]


def is_of_two(transaction):
    """Whether it is between two accounts."""
    return transaction in _OF_TWO


def carry_out(transaction, held, semantics):
    """What a transaction does to the balances that it read: what it adds to each, in cents.

    Returns the changes, in the order of `held`, and why it changes nothing, None if it may.
    """
    none = (0,) * len(held)
    canonical = semantics == "canonical"
    if transaction == "balance":
        return none, None
    if transaction == "deposit_checking":
        return (DEPOSIT,), None
    if transaction == "transact_savings":
        return (none, "overdraft") if held[0] < WITHDRAWAL else ((-WITHDRAWAL,), None)
    if transaction == "send_payment":
        return (none, "overdraft") if held[0] < PAYMENT else ((-PAYMENT, PAYMENT), None)
    if transaction == "write_check":
        if held[0] + held[1] >= CHECK:
            return (0, -CHECK), None
        # H-Store's code takes less of whoever has not enough.
        return (0, -(CHECK + PENALTY) if canonical else -(CHECK - PENALTY)), None
    saving, checking, _, other_checking = held
    if canonical:
        return (-saving, -checking, 0, saving + checking), None
    # H-Store's code: the savings of one and the checking of the other, which it takes from the
    # other's savings, and empties the first's checking.
    total = saving + other_checking
    return (0, -checking, -total, 0), None


def weights(text):
    """Reads a mix: the weight of each transaction, in their order.

    Raises ValueError where a name or a weight is none.
    """
    given = dict.fromkeys(TRANSACTIONS, 0)
    for part in text.split(","):
        name, _, weight = part.strip().partition(" ")
        if name not in given or not weight.strip().isdecimal():
            raise ValueError(
                f"mix: {part.strip()!r} is no transaction with its weight, such as balance 15;"
                f" there are {', '.join(TRANSACTIONS)}"
            )
        given[name] = int(weight)
    if not sum(given.values()):
        raise ValueError("mix: no transaction has a weight")
    return [given[name] for name in TRANSACTIONS]


def draw(transaction, mix, accounts, hot, hot_accounts, account, other, seed):
    """The transaction and its accounts, with what is not given drawn by the seed."""
    chance = random.Random(seed)
    if transaction == "mix":
        (transaction,) = chance.choices(TRANSACTIONS, weights(mix))
    # With none that is hot, all are drawn alike.
    hot_accounts = min(hot_accounts, accounts) if hot else accounts

    def drawn(but=None):
        """An account of the hot ones or of the others, by chance, and another than `but`."""
        is_hot = hot_accounts == accounts or chance.randrange(100) < hot
        first, count = (0, hot_accounts) if is_hot else (hot_accounts, accounts - hot_accounts)
        number = first + chance.randrange(count)
        if number != but:
            return number
        # Of its group, any other; where it is alone there, a hot one.
        if count == 1:
            return chance.randrange(hot_accounts)
        return first + (number - first + 1 + chance.randrange(count - 1)) % count

    account = drawn() if account < 0 else account
    if not is_of_two(transaction):
        return transaction, account, None
    other = drawn(account) if other < 0 else other
    if other == account:
        raise ValueError(f"other: account {account} is the same")
    return transaction, account, other
