"""SmallBank on documents: makes accounts, carries out a transaction, or checks all that were."""

import time

import bank as rules
from uncia_documents import ABSENT, ConflictError, Documents, request_id
from uncia_envelope import Choice, Parameter, enveloped

BATCH = 500  # documents that are made at once
PAGE = 1000

documents = Documents()


@enveloped(
    {
        "phase": Choice("transact", ("transact", "load", "verify")),
        "bank": Choice("bank"),
        "accounts": Parameter(1_000, 2, 1_000_000),
        "transaction": Choice("mix", ("mix", *rules.TRANSACTIONS)),
        "mix": Choice(
            "amalgamate 15, balance 15, deposit_checking 15, send_payment 25, transact_savings 15,"
            " write_check 15"
        ),
        "hot": Parameter(0, 0, 100),
        "hot_accounts": Parameter(10, 2, 1_000_000),
        "account": Parameter(-1, -1, 10_000_000),
        "other": Parameter(-1, -1, 10_000_000),
        "semantics": Choice("canonical", ("canonical", "hstore")),
        "by": Choice("transaction", ("transaction", "revisions")),
        "pause": Parameter(0, 0, 10_000, "ms"),
        "id": Choice(""),
    }
)
def handler(phase, bank, accounts, semantics, by, pause, id, **drawn):
    prefix = bank + "/"
    if phase == "load":
        return load(prefix, accounts, semantics), True
    if phase == "verify":
        return (verify_transactions if by == "transaction" else verify_revisions)(prefix), True
    id = id or request_id()
    if not id:
        raise ValueError("id: the runtime does not tell the request's own; give one")
    chosen = rules.draw(accounts=accounts, seed=id, **drawn)
    if by == "transaction":
        return transact(prefix, id, semantics, *chosen), True
    return revise(prefix, id, semantics, pause, *chosen), True


def load(prefix, accounts, semantics):
    """Makes the accounts, once."""
    made = {"accounts": accounts, "semantics": semantics}
    present, _ = documents.get(prefix + "bank")
    if present not in (None, made):
        raise ValueError(f"the bank {prefix[:-1]!r} is there already: {present}")
    if present is None:
        keys = [f"{kind}/{number}" for kind in ("saving", "checking") for number in range(accounts)]
        for start in range(0, len(keys), BATCH):
            steps = [
                ("put", prefix + key, None, rules.first_balance(key))
                for key in keys[start : start + BATCH]
            ]
            documents.transact(steps, writer="load")
        documents.put(prefix + "bank", made, ABSENT, writer="load")
    return made


def read(prefix, keys):
    """Balances, and their revisions. Raises ValueError where an account does not exist."""
    held, revisions = {}, {}
    for key in keys:
        held[key], revisions[key] = documents.get(prefix + key)
        if held[key] is None:
            raise ValueError(f"there is no account {key.partition('/')[2]}")
    return held, revisions


def described(note, again, spans):
    """The answer: what was noted, now or before, and how often another was faster."""
    return {**note, "retries": len(spans), "again": again, "uncia": {"spans": spans}}


def noted(transaction, account, other, held, semantics):
    """What a transaction does to the balances that it read, as it is noted."""
    changes, aborted = rules.carry_out(transaction, list(held.values()), semantics)
    return {
        "transaction": transaction,
        "accounts": [account] if other is None else [account, other],
        "changes": {key: change for key, change in zip(held, changes) if change},
        "aborted": aborted,
    }


def transact(prefix, id, semantics, transaction, account, other):
    """Carries out a transaction and notes its id, all at once; one of this id is never repeated."""
    note_key = f"{prefix}done/{id}"
    spans = []
    while True:
        begun = time.time_ns()
        held, revisions = read(prefix, rules.balances(transaction, account, other))
        note = noted(transaction, account, other, held, semantics)
        changes = note["changes"]
        # What was only read must not have changed either.
        steps = [
            ("put", prefix + key, revisions[key], held[key] + changes[key])
            if key in changes
            else ("check", prefix + key, revisions[key])
            for key in held
        ]
        try:
            documents.transact([("put", note_key, ABSENT, note), *steps])
            return described(note, False, spans)
        except ConflictError as conflict:
            if conflict.key == note_key:
                note, _ = documents.get(note_key)
                return described(note, True, spans)
            spans.append(["retry", begun, time.time_ns()])


def revise(prefix, id, semantics, pause, transaction, account, other):
    """Carries out a transaction one document after the other: one that is cut off is half done."""
    note_key = f"{prefix}begun/{id}"
    held, _ = read(prefix, rules.balances(transaction, account, other))
    note = noted(transaction, account, other, held, semantics)
    try:
        documents.put(note_key, note, ABSENT)
    except ConflictError:
        note, _ = documents.get(note_key)
        return described(note, True, [])
    spans = []
    for position, (key, change) in enumerate(note["changes"].items()):
        if position and pause:
            time.sleep(pause / 1000)
        while True:
            begun = time.time_ns()
            balance, revision = documents.get(prefix + key)
            try:
                # The change says whose it is, for who counts what was carried out.
                documents.put(prefix + key, balance + change, revision, writer=id)
                break
            except ConflictError:
                spans.append(["retry", begun, time.time_ns()])
    return described(note, False, spans)


def bank_of(prefix):
    """What the bank was made with, and its balances at first and now."""
    made, _ = documents.get(prefix + "bank")
    if made is None:
        raise ValueError(f"there is no bank {prefix[:-1]!r}: load it first")
    now = {}
    for kind in ("saving", "checking"):
        for key, balance, _ in documents.list(f"{prefix}{kind}/", PAGE):
            now[key.removeprefix(prefix)] = balance
    if len(now) != 2 * made["accounts"]:
        raise ValueError(f"{made['accounts']} accounts have {len(now)} balances, not two each")
    return made, {key: rules.first_balance(key) for key in now}, now


def verify_transactions(prefix):
    """Carries out again, in the order of their revisions, what was noted, and compares.

    Raises ValueError where that is not what the documents hold: money was lost or made, or a
    transaction was carried out on other balances than there were.
    """
    made, balances, now = bank_of(prefix)
    notes = [
        (revision, key, note) for key, note, revision in documents.list(f"{prefix}done/", PAGE)
    ]
    notes.sort(key=lambda it: it[0])
    for _, key, note in notes:
        account, other = (*note["accounts"], None)[:2]
        held = {it: balances[it] for it in rules.balances(note["transaction"], account, other)}
        again = noted(note["transaction"], account, other, held, made["semantics"])
        if again != note:
            raise ValueError(
                f"{key.removeprefix(prefix)}: {note['transaction']} on {held} changes"
                f" {again['changes']}, and {note['changes']} was noted: it was not alone"
            )
        for it, change in note["changes"].items():
            balances[it] += change
    wrong = [it for it in now if now[it] != balances[it]]
    if wrong:
        raise ValueError(
            f"{len(wrong)} balances are not what the noted transactions come to: {wrong[0]} is"
            f" {now[wrong[0]]} cents, and {balances[wrong[0]]} are noted"
        )
    return {
        "transactions": len(notes),
        "aborted": sum(note["aborted"] is not None for *_, note in notes),
        "total": sum(now.values()),
    }


def verify_revisions(prefix):
    """Counts, by the changes of the balances, which transactions were carried out, and how far.

    Raises ValueError where a change is none of those that the transaction noted.
    """
    _, balances, now = bank_of(prefix)
    notes = {
        key.removeprefix(f"{prefix}begun/"): note
        for key, note, _ in documents.list(f"{prefix}begun/", PAGE)
    }
    left = {id: dict(note["changes"]) for id, note in notes.items()}
    planned = {id: len(changes) for id, changes in left.items()}
    after = 0
    while changes := documents.changes(after, PAGE):
        after = changes[-1]["position"]
        for change in changes:
            key = change["key"].removeprefix(prefix)
            is_balance = change["key"].startswith(prefix) and key.startswith(
                ("saving/", "checking/")
            )
            if not is_balance or change["writer"] == "load":
                continue
            added = change["value"] - balances[key]
            balances[key] = change["value"]
            if left.get(change["writer"], {}).pop(key, None) != added:
                raise ValueError(
                    f"{key}: {change['writer']} added {added} cents, twice or without having"
                    " noted that it would"
                )
    if balances != now:
        raise ValueError("the balances are not what their changes come to")
    half_done = [id for id, changes in left.items() if 0 < len(changes) < planned[id]]
    not_begun = [id for id, changes in left.items() if changes and len(changes) == planned[id]]
    moment = time.time_ns()
    return {
        "transactions": len(notes),
        "aborted": sum(note["aborted"] is not None for note in notes.values()),
        "total": sum(now.values()),
        "half_done": len(half_done),
        "not_begun": len(not_begun),
        "missing": sum(sum(left[id].values()) for id in (*half_done, *not_begun)),
        "uncia": {"spans": [["half_done", moment, moment] for _ in half_done]},
    }
