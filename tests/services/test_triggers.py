"""Triggers: every change begins what follows it once, across kills too, and no loop is endless."""

import io
import json
import random
import shutil
import signal
import sys
import time
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from run_helpers import Uncia, finish, function

from uncia.errors import RunFailedError
from uncia.experiment import files
from uncia.platforms import ServiceEndpoint, boto, inquiries, triggers
from uncia.platforms.embedded import service_config
from uncia.platforms.server import Server
from uncia.services import documents, redis_server

from .conftest import names_its_place

pytestmark = pytest.mark.usefixtures("redis")

LOCK = Path(__file__).parent / "redis_lock" / "requirements.txt"

FILE = """\
name: followed
seed: 1
platform: {kind: embedded, init_timeout: 2min}
services: {documents: {}}
functions:
  write: {source: ./write, reach: [documents]}
  follow: {source: ./follow, reach: [documents]}
  note: {source: ./follow, reach: [documents]}
chains:
  two: {stages: {first: {function: follow}, second: {function: note}}}
triggers:
  single: {prefix: orders/, changes: [put], function: follow}
  steps: {prefix: orders/, changes: [put], chain: two, kind: sequence}
experiments:
  writing: {function: write, closed: {clients: 2, requests: 5}}
"""

WRITE = """\
from uncia_documents import ABSENT, Documents

documents = Documents()

def handler(event, context):
    documents.put("orders/" + context.aws_request_id, {"n": 1}, ABSENT)
    documents.put("elsewhere/" + context.aws_request_id, 1)
    return {}
"""

# Notes what it was given, once: a second time would be a conflict.
FOLLOW = """\
from uncia_documents import ABSENT, Documents

documents = Documents()

def handler(event, context):
    if "change" in event:
        change = event["change"]
        assert change["kind"] == "put" and change["value"] == {"n": 1}, change
        key = f"{change['trigger']}/{change['position']}"
    else:
        key = "second/" + event["key"]
    documents.put(key, 1, ABSENT)
    return {"key": key}
"""

# Writes below the prefix that it follows, without any library.
LOOP = """\
import os, socket

def handler(event, context):
    host, port = os.environ["REDIS_URL"].removeprefix("redis://").split(":")
    with socket.create_connection((host, int(port))) as server:
        def ask(*words):
            words = [str(word).encode() for word in words]
            pieces = [b"$%d\\r\\n%s\\r\\n" % (len(word), word) for word in words]
            server.sendall(b"*%d\\r\\n" % len(words) + b"".join(pieces))
            return server.recv(4096)
        ask("AUTH", "default", os.environ["UNCIA_DOCUMENTS_PASSWORD"])
        prefix = os.environ["UNCIA_DOCUMENTS_PREFIX"]
        keys = [prefix + name for name in ("documents", "order", "changes", "last")]
        answer = ask("EVALSHA", os.environ["UNCIA_DOCUMENTS_SCRIPT"], 4, *keys,
                     "transact", context.aws_request_id, "put", "loop/x", "", "1")
        assert answer.startswith(b"*2"), answer
    return {}
"""


def written(folder: Path) -> Path:
    for name, code in (("write", WRITE), ("follow", FOLLOW)):
        made = function(folder / name, code)
        shutil.copy(LOCK, made / "python" / "requirements.txt")
        form = yaml.safe_load((made / "function.yaml").read_text())
        form["runtimes"]["python"]["requirements"] = ["redis"]
        form["timeout"] = "30s"
        (made / "function.yaml").write_text(yaml.safe_dump(form))
    path = folder / "followed.yaml"
    path.write_text(FILE)
    return path


def test_what_follows_changes_has_their_writers_as_parents(tmp_path: Path, uncia: Uncia) -> None:
    ended = finish(uncia("run", written(tmp_path), "--out", tmp_path / "out"))
    assert ended.code == 0, ended.out + ended.err
    table = pyarrow.parquet.read_table(tmp_path / "out" / "invocations.parquet")
    rows = table.to_pylist()
    assert Counter(row["outcome"] for row in rows) == {"ok": 20}, rows
    writers = {row["invocation"] for row in rows if row["parent"] is None}
    assert len(writers) == 5
    stages = ("single", "first", "second")
    for stage in stages:
        hops = [row for row in rows if row["stage"] == stage]
        assert {row["parent"] for row in hops} == writers
        assert len(hops) == 5
        assert {row["experiment"] for row in hops} == {"writing"}
    assert (tmp_path / "out" / "report.html").exists()


def package(code: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("main.py", code)
    return buffer.getvalue()


def deploy(server: Server, name: str, code: str, **settings: Any) -> None:
    client = boto.client(server.address)
    client.create_function(
        FunctionName=name,
        Runtime=f"python3.{sys.version_info.minor}",
        Role=boto.ROLE,
        Handler="main.handler",
        Code={"ZipFile": package(code)},
        **settings,
    )


def settle(server: Server) -> None:
    while not triggers.is_settled(server.address):
        time.sleep(0.05)


def killed(server: Server, config: dict[str, Any]) -> Server:
    """The next platform on the state folder of one that is killed."""
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    server.stop()
    return Server(server.log.parent, config)


def killed_while_a_machine_waits(
    server: Server, config: dict[str, Any], endpoint: ServiceEndpoint
) -> Server:
    """An execution that a trigger began is carried out by the next platform."""
    states = boto.client(server.address, "stepfunctions")
    function = "arn:aws:lambda:us-east-1:000000000000:function:count"
    definition = {
        "StartAt": "wait",
        "States": {
            "wait": {"Type": "Wait", "Seconds": 3, "Next": "task"},
            "task": {"Type": "Task", "Resource": function, "End": True},
        },
    }
    machine = states.create_state_machine(
        name="m", definition=json.dumps(definition), roleArn=boto.ROLE, type="STANDARD"
    )["stateMachineArn"]
    triggers.put(server.address, "w", {"prefix": "c/", "machine": machine})
    documents.seed(endpoint, {"c/1": 1})
    while not states.list_executions(stateMachineArn=machine)["executions"]:
        time.sleep(0.02)
    server = killed(server, config)
    settle(server)
    states = boto.client(server.address, "stepfunctions")
    (ended,) = states.list_executions(stateMachineArn=machine)["executions"]
    assert ended["status"] == "SUCCEEDED"
    rows, _ = inquiries.fetch_rows(server.address, "invocations", 0, print)
    (row,) = [row for row in rows.to_pylist() if row["stage"] == "task"]
    assert row["outcome"] == "ok"
    return server


@pytest.mark.long
def test_each_change_is_begun_once_across_kills(tmp_path: Path, endpoint: ServiceEndpoint) -> None:
    draw = random.Random(8)
    config = {"services": service_config({"documents": endpoint})}
    server = Server(tmp_path / "state", config)
    count = 60
    try:
        deploy(server, "count", "def handler(event, context):\n    return event['change']['key']\n")
        triggers.put(server.address, "t", {"prefix": "a/", "function": "count", "stage": "s"})
        for number in range(count):
            documents.seed(endpoint, {f"a/{number}": {"n": number}, f"b/{number}": 0})
            if number in (20, 45):
                time.sleep(draw.uniform(0, 0.1))
                server = killed(server, config)
        settle(server)
        rows, _ = inquiries.fetch_rows(server.address, "invocations", 0, print)
        good = [row for row in rows.to_pylist() if row["outcome"] == "ok"]
        names = Counter(row["invocation"] for row in good)
        changes = {f"t:{position}" for position in range(1, 2 * count, 2)}
        assert set(names) == changes
        assert set(names.values()) == {1}
        assert {row["stage"] for row in good} == {"s"}
        # A trigger that is made again goes on where it was.
        triggers.put(server.address, "t", {"prefix": "b/", "function": "count"})
        documents.seed(endpoint, {"b/last": 1})
        settle(server)
        rows, _ = inquiries.fetch_rows(server.address, "invocations", 0, print)
        assert len([row for row in rows.to_pylist() if row["outcome"] == "ok"]) == count + 1
        triggers.remove(server.address, "t")
        with pytest.raises(RunFailedError, match="There is no trigger"):
            triggers.remove(server.address, "t")
        server = killed_while_a_machine_waits(server, config, endpoint)
    finally:
        server.stop()


def test_a_trigger_that_is_made_several_times_at_once_follows_once(
    tmp_path: Path, endpoint: ServiceEndpoint
) -> None:
    server = Server(tmp_path / "state", {"services": service_config({"documents": endpoint})})
    try:
        deploy(server, "count", "def handler(event, context):\n    return 0\n")
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(
                lambda _: triggers.put(server.address, "t", {"prefix": "", "function": "count"}),
                range(16),
            ):
                pass
        documents.seed(endpoint, {"a": 1})
        settle(server)
        rows, _ = inquiries.fetch_rows(server.address, "invocations", 0, print)
        assert [row["invocation"] for row in rows.to_pylist()] == ["t:1"]
    finally:
        server.stop()


def test_positions_of_another_feed_are_of_other_changes(
    tmp_path: Path, endpoint: ServiceEndpoint
) -> None:
    """Where the documents' server begins anew, an execution has the name of the change already."""
    other = redis_server.Server(tmp_path / "other", 32 << 20)
    variables = {documents.PASSWORD: other.password, documents.PREFIX: "p:"}
    ends = [endpoint, documents.prepare(other.address, variables)]
    server = Server(tmp_path / "state", {"services": service_config({"documents": ends[0]})})
    try:
        deploy(server, "count", "def handler(event, context):\n    return 0\n")
        function = "arn:aws:lambda:us-east-1:000000000000:function:count"
        task = {"Type": "Task", "Resource": function, "End": True}
        machine = boto.client(server.address, "stepfunctions").create_state_machine(
            name="m",
            definition=json.dumps({"StartAt": "s", "States": {"s": task}}),
            roleArn=boto.ROLE,
        )["stateMachineArn"]
        for number, end in enumerate(ends):
            triggers.put(server.address, "t", {"machine": machine, "from": 0})
            documents.seed(end, {"a": number})
            settle(server)
            # What it has passed already is begun no second time.
            triggers.put(server.address, "t", {"machine": machine, "from": 0})
            settle(server)
            rows, _ = inquiries.fetch_rows(server.address, "invocations", 0, print)
            assert [row["stage"] for row in rows.to_pylist()] == ["s"] * (number + 1)
            if end is endpoint:
                server.stop()
                config = {"services": service_config({"documents": ends[1]})}
                server = Server(tmp_path / "state", config)
    finally:
        server.stop()
        other.stop()


def test_a_feed_that_began_anew_and_is_longer_than_before_is_followed_from_its_start(
    tmp_path: Path, endpoint: ServiceEndpoint
) -> None:
    other = redis_server.Server(tmp_path / "other", 32 << 20)
    variables = {documents.PASSWORD: other.password, documents.PREFIX: "p:"}
    anew = documents.prepare(other.address, variables)
    server = Server(tmp_path / "state", {"services": service_config({"documents": endpoint})})
    try:
        deploy(server, "count", "def handler(event, context):\n    return 0\n")
        triggers.put(server.address, "t", {"prefix": "", "function": "count"})
        documents.seed(endpoint, {"a": 1})
        settle(server)
        documents.seed(anew, {"b": 1, "c": 2, "d": 3})
        config = {"services": service_config({"documents": anew})}
        # A second time, it is the feed that was followed before.
        for warnings in (1, 0):
            server.stop()
            server = Server(tmp_path / "state", config)
            settle(server)
            rows, _ = inquiries.fetch_rows(server.address, "invocations", 0, print)
            names = [row["invocation"] for row in rows.to_pylist()]
            assert sorted(names) == ["t:1", "t:1", "t:2", "t:3"]
            sentences = [
                it for it in inquiries.fetch_warnings(server.address) if "begun anew" in it
            ]
            assert len(sentences) == warnings, sentences
    finally:
        server.stop()
        other.stop()


def names_of_rows(server: Server) -> list[str]:
    rows, _ = inquiries.fetch_rows(server.address, "invocations", 0, print)
    return sorted(row["invocation"] for row in rows.to_pylist())


def stopped_and_set_back(server: Server, endpoint: ServiceEndpoint) -> None:
    """Follow three changes and stop, before the documents are those after the first.

    As if restored from a snapshot, which a second database is here.
    """
    deploy(server, "count", "def handler(event, context):\n    return 0\n")
    triggers.put(server.address, "t", {"prefix": "", "function": "count"})
    documents.seed(endpoint, {"a": 1})
    settle(server)
    with documents.connection(endpoint.address, endpoint.environment) as redis:
        for key in (*documents.keys("p:"), "p:feed"):
            redis.call("COPY", key, key, "DB", 1)
        documents.seed(endpoint, {"b": 1, "c": 1})
        settle(server)
        server.stop()
        redis.call("SWAPDB", 0, 1)


def feed_warnings(server: Server) -> list[str]:
    return [it for it in inquiries.fetch_warnings(server.address) if "was set back" in it]


def test_a_feed_that_was_set_back_is_followed_from_there(
    tmp_path: Path, endpoint: ServiceEndpoint
) -> None:
    config = {"services": service_config({"documents": endpoint})}
    server = Server(tmp_path / "state", config)
    try:
        stopped_and_set_back(server, endpoint)
        server = Server(tmp_path / "state", config)
        while not (warnings := feed_warnings(server)):
            time.sleep(0.02)
        assert "from change 3 to 1" in warnings[0]
        assert "written up to there since it was set back, if any, are not" in warnings[0]
        documents.seed(endpoint, {"d": 1})
        while len(names_of_rows(server)) < 4:
            time.sleep(0.02)
        settle(server)
        assert names_of_rows(server) == ["t:1", "t:2", "t:2", "t:3"]
    finally:
        server.stop()


@pytest.mark.parametrize("count", [2, 3])
def test_changes_that_were_written_while_nobody_followed_a_feed_that_was_set_back_are_told_of(
    tmp_path: Path, endpoint: ServiceEndpoint, count: int
) -> None:
    """The feed is as long as it was, or longer, and its changes are others."""
    config = {"services": service_config({"documents": endpoint})}
    server = Server(tmp_path / "state", config)
    try:
        stopped_and_set_back(server, endpoint)
        documents.seed(endpoint, {f"new-{number}": 1 for number in range(count)})
        server = Server(tmp_path / "state", config)
        settle(server)
        while not (warnings := feed_warnings(server)):
            time.sleep(0.02)
        assert "its change 3 is not the one that was followed" in warnings[0]
        assert "written up to it since the server was set back are not" in warnings[0]
        documents.seed(endpoint, {"last": 1})
        settle(server)
        behind = [f"t:{position}" for position in range(4, 1 + count + 2)]
        assert names_of_rows(server) == ["t:1", "t:2", "t:3", *behind]
        # It is told once: from then on the trigger knows the feed.
        server.stop()
        server = Server(tmp_path / "state", config)
        documents.seed(endpoint, {"again": 1})
        settle(server)
        assert feed_warnings(server) == []
        assert "set back and has been written to" in server.log.read_text()
    finally:
        server.stop()


def test_the_feed_of_a_full_server_is_followed(tmp_path: Path, endpoint: ServiceEndpoint) -> None:
    config = {"services": service_config({"documents": endpoint})}
    server = Server(tmp_path / "state", config)
    try:
        deploy(server, "count", "def handler(event, context):\n    return 0\n")
        triggers.put(server.address, "t", {"prefix": "", "function": "count"})
        documents.seed(endpoint, {"a": 1})
        settle(server)
        server.stop()
        documents.seed(endpoint, {"b": 1})
        with documents.connection(endpoint.address, endpoint.environment) as redis:
            redis.call("CONFIG", "SET", "maxmemory", 1)
        with pytest.raises(RunFailedError, match="maxmemory"):
            documents.seed(endpoint, {"c": 1})
        server = Server(tmp_path / "state", config)
        settle(server)
        assert names_of_rows(server) == ["t:1", "t:2"]
    finally:
        server.stop()


def test_a_loop_is_stopped_with_a_sentence(tmp_path: Path, endpoint: ServiceEndpoint) -> None:
    server = Server(tmp_path / "state", {"services": service_config({"documents": endpoint})})
    try:
        deploy(server, "loop", LOOP, Tags={"uncia:reach": "documents"})
        triggers.put(server.address, "again", {"prefix": "loop/", "function": "loop"})
        documents.seed(endpoint, {"loop/x": 0})
        settle(server)
        rows, _ = inquiries.fetch_rows(server.address, "invocations", 0, print)
        found = rows.to_pylist()
        assert [row["outcome"] for row in found] == ["ok"] * 16, found
        names = ["again:1", *(f"again:{number}.{number}" for number in range(2, 17))]
        # In any order: one writes before it ends, and the next may be quicker.
        parents = dict(zip(names, [None, *names[:-1]], strict=True))
        assert {row["invocation"]: row["parent"] for row in found} == parents
        (warning,) = [
            text for text in inquiries.fetch_warnings(server.address) if "trigger" in text
        ]
        assert 'was stopped at the change 17 of "loop/x"' in warning
        assert "must not write below the trigger's prefix" in warning
        for definition, message in (
            ({"function": "nobody"}, "Function not found"),
            ({"function": "loop", "machine": "m"}, "one of a function"),
            ({"function": "loop", "changes": []}, "changes names none"),
            ({"function": "loop", "changes": ["move"]}, "unknown variant"),
            ({"function": "loop", "event": {"change": 1}}, "that of the change itself"),
        ):
            with pytest.raises(RunFailedError, match=message):
                triggers.put(server.address, "bad", definition)
    finally:
        server.stop()


def test_mistakes_in_triggers_are_named(tmp_path: Path) -> None:
    path = written(tmp_path)
    for old, new, message in (
        ("changes: [put], function: follow", "function: folow", "there is no function 'folow'"),
        ("kind: sequence", "kind: client", "no client to carry the chain on"),
        (", function: follow}", "}", "a function or a chain"),
        ("prefix: orders/, changes: [put]", "changes: []", "needs at least 1"),
        ("chain: two, kind: sequence", "chain: three, kind: sequence", "no chain 'three'"),
        ("services: {documents: {}}", "services: {store: {}}", "service documents"),
        (
            "function: write, closed",
            "chain: two, kind: nested, closed",
            "the nested chain two both have a stage second, which rows could not tell apart",
        ),
    ):
        path.write_text(FILE)
        names_its_place(path, old, new, message)
    path.write_text(FILE)
    assert set(files.load(path)[0].triggers) == {"single", "steps"}
