"""SmallBank while instances are killed: no cent is lost, and no transaction is applied twice."""

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from uncia.functions import package
from uncia.platforms import ServiceEndpoint, boto
from uncia.platforms.embedded import service_config
from uncia.platforms.server import Server
from uncia.services import documents

pytestmark = [
    pytest.mark.skipif(
        "UNCIA_TEST_SUITES" not in os.environ, reason="the long form: make test-suites"
    ),
    pytest.mark.timeout(600),
]

ACCOUNTS = 20
CLIENTS = 6
TRANSACTIONS = 240
KILLS = 12


@pytest.fixture
def server(tmp_path: Path, endpoint: ServiceEndpoint) -> Iterator[Server]:
    config = {"services": service_config({"documents": endpoint}), "init_timeout_ms": 120_000}
    made = Server(tmp_path / "state", config)
    try:
        packaged = package("smallbank")
        boto.client(made.address).create_function(
            FunctionName="bank",
            Runtime=f"python3.{sys.version_info.minor}",
            Role=boto.ROLE,
            Handler=packaged.handler,
            Code={"ZipFile": packaged.path.read_bytes()},
            MemorySize=512,
            Timeout=120,
            Tags={"uncia:reach": "documents"},
        )
        yield made
    finally:
        made.stop()


def ask(server: Server, **event: Any) -> dict[str, Any]:
    """Invoke the bank; the answer, or what was wrong under ``errorMessage``."""
    client = boto.client(server.address)
    answer = client.invoke(
        FunctionName="bank", Payload=json.dumps({"accounts": ACCOUNTS, **event}).encode()
    )
    read: dict[str, Any] = json.loads(answer["Payload"].read())
    return read


def instances(server: Server) -> list[int]:
    """The processes of the platform's instances that have none of their own: the runtimes."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
    below = {server.process.pid}
    while more := {pid for pid, of in parents.items() if of in below} - below:
        below |= more
    return [pid for pid in below if pid not in parents.values()]


def balances(endpoint: ServiceEndpoint) -> list[tuple[str, int, Any]]:
    return list(documents.below(endpoint, "bank/checking/"))


def killing(server: Server, done: threading.Event) -> None:
    draw = random.Random(5)
    for _ in range(KILLS):
        if done.wait(draw.uniform(0.05, 0.4)):
            return
        for pid in draw.sample(found := instances(server), min(2, len(found))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def insist(server: Server, **event: Any) -> tuple[dict[str, Any], int]:
    """Ask until there is an answer, with the same id; and how often an instance was gone."""
    gone = 0
    while True:
        try:
            answer = ask(server, **event)
        except ClientError:
            answer = {"errorMessage": "the platform could not"}
        if "errorMessage" not in answer:
            return answer, gone
        gone += 1
        assert gone < 100, answer
        time.sleep(0.02)


def test_no_cent_is_lost_while_instances_are_killed(
    server: Server, endpoint: ServiceEndpoint
) -> None:
    assert ask(server, phase="load")["accounts"] == ACCOUNTS
    first = {key: value for key, _, value in documents.below(endpoint, "bank/")}
    first.pop("bank/bank")
    ids = [f"t{number}" for number in range(TRANSACTIONS)]
    done = threading.Event()
    killer = threading.Thread(target=killing, args=(server, done))
    killer.start()
    try:
        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = list(pool.map(lambda id: insist(server, id=id, hot=50, hot_accounts=2), ids))
    finally:
        done.set()
        killer.join()
    assert sum(gone for _, gone in answers) > 0
    # By the notes alone, with nothing of the function's code.
    entries = {key: value for key, _, value in documents.below(endpoint, "bank/")}
    notes = {key.removeprefix("bank/done/"): note for key, note in entries.items() if "done" in key}
    assert sorted(notes) == sorted(ids)
    balances = Counter(first)
    for note in notes.values():
        for key, change in note["changes"].items():
            balances["bank/" + key] += change
    assert {key: entries[key] for key in first} == dict(balances)
    checked, _ = insist(server, phase="verify")
    assert checked["transactions"] == TRANSACTIONS
    assert checked["total"] == sum(balances.values())
    # One that was carried out is not, again.
    again, _ = insist(server, id=ids[0], hot=50, hot_accounts=2)
    assert again["again"] is True
    assert again["changes"] == notes[ids[0]]["changes"]


def test_what_is_half_done_is_counted_and_bad_input_is_told(
    server: Server, endpoint: ServiceEndpoint
) -> None:
    assert ask(server, phase="load")["accounts"] == ACCOUNTS
    event = {"by": "revisions", "transaction": "send_payment", "account": 1, "other": 2}
    assert ask(server, **event, id="whole")["changes"] == {"checking/1": -500, "checking/2": 500}
    (before,) = [value for key, _, value in balances(endpoint) if key == "bank/checking/1"]
    cut = {**event, "id": "cut", "pause": 10_000}
    waits = threading.Thread(target=ask, args=(server,), kwargs=cut)
    waits.start()
    while ("bank/checking/1", before) in [(key, value) for key, _, value in balances(endpoint)]:
        assert waits.is_alive()
        time.sleep(0.05)
    for pid in instances(server):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    waits.join()
    checked, _ = insist(server, phase="verify", by="revisions")
    assert (checked["half_done"], checked["not_begun"], checked["missing"]) == (1, 0, 500)
    # An account that does not exist, an account and itself, and more than there is.
    transaction = {"transaction": "send_payment", "account": 1}
    assert "there is no account 99" in ask(server, **transaction, other=99)["errorMessage"]
    assert "account 1 is the same" in ask(server, **transaction, other=1)["errorMessage"]
    documents.seed(endpoint, {"bank/checking/1": 499})
    refused = ask(server, **transaction, other=2)
    assert (refused["aborted"], refused["changes"]) == ("overdraft", {})
    assert "no transaction with its weight" in ask(server, mix="steal 1")["errorMessage"]
