"""The documents beside functions: revisions and transactions hold, and nothing of them is left."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow.parquet
import pytest
from run_helpers import Uncia, finish, function, wait_until

from uncia.errors import UnciaError
from uncia.platforms import Context, ServiceEndpoint, processes
from uncia.platforms.journal import Journal, Resource
from uncia.services import documents, redis_server, resp

from .conftest import names_its_place, plan_of

pytestmark = pytest.mark.usefixtures("redis")

PREFIX = "uncia:r[1]*:"
LOCK = Path(__file__).parent / "redis_lock" / "requirements.txt"

FILE = """\
name: counted
seed: 1
platform: {{kind: embedded}}
services: {{documents: {options}}}
functions:
  add: {{source: ./add, reach: [documents]}}
  verify: {{source: ./verify, reach: [documents]}}
experiments:
  adding: {{function: add, closed: {{clients: 5, {load}}}}}
  verified: {{function: verify, closed: {{clients: 1, requests: 1}}}}
"""

# Each adds one to the same document, and notes that it did.
ADD = """\
from uncia_documents import ABSENT, ConflictError, Documents

documents = Documents()

def handler(event, context):
    noted = "done/" + context.aws_request_id
    for attempt in range(1000):
        count, revision = documents.get("count")
        try:
            steps = [("put", "count", revision, (count or 0) + 1), ("put", noted, ABSENT, attempt)]
            return documents.transact(steps)
        except ConflictError:
            pass
    raise RuntimeError("1000 conflicts")
"""

VERIFY = """\
from uncia_documents import ABSENT, ConflictError, Documents

documents = Documents()

def handler(event, context):
    done = list(documents.list("done/", page=7))
    count, revision = documents.get("count")
    assert count == len(done) == 40, (count, len(done))
    assert all(key > before for (before, *_), (key, *_) in zip(done, done[1:]))
    changes = documents.changes()
    assert [it["position"] for it in changes] == list(range(1, 81))
    assert [it["value"] for it in changes if it["key"] == "count"] == list(range(1, 41))
    assert all(it["key"] in ("count", "done/" + it["writer"]) for it in changes)
    assert documents.changes(after=78, limit=1) == changes[78:79]
    try:
        documents.transact([("put", "other", None, 1), ("put", "count", revision - 1, 0)])
    except ConflictError as conflict:
        assert (conflict.key, conflict.revision) == ("count", revision)
    else:
        raise AssertionError("a transaction on an old revision was carried out")
    assert documents.get("other") == (None, ABSENT)
    deleted = documents.delete("count", revision)
    assert documents.get("count") == (None, ABSENT)
    (change,) = documents.changes(after=80)
    assert (change["position"], change["kind"], change["value"]) == (deleted, "delete", None)
    # Nobody who knows the document from before takes it for the same.
    assert documents.put("count", {"a": "é", "b": [0.1, None, 2**53 + 1]}, ABSENT) > deleted
    assert documents.get("count")[0] == {"a": "é", "b": [0.1, None, 2**53 + 1]}
    return {}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[redis_server.Server]:
    made = redis_server.Server(tmp_path / "served", 8 << 20)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def endpoint(server: redis_server.Server) -> ServiceEndpoint:
    variables = {documents.PASSWORD: server.password, documents.PREFIX: PREFIX}
    return documents.prepare(server.address, variables)


def written(folder: Path, options: str = "{}", load: str = "requests: 40") -> Path:
    for name, code in (("add", ADD), ("verify", VERIFY)):
        made = function(folder / name, code)
        shutil.copy(LOCK, made / "python" / "requirements.txt")
        form = (made / "function.yaml").read_text()
        form = form.replace("main.handler}", "main.handler, requirements: [redis]}")
        (made / "function.yaml").write_text(form.replace("timeout: 2s", "timeout: 30s"))
    path = folder / "counted.yaml"
    path.write_text(FILE.format(options=options, load=load))
    return path


def test_a_run_has_documents_of_its_own(tmp_path: Path, uncia: Uncia, state_home: Path) -> None:
    ended = finish(uncia("run", written(tmp_path), "--out", tmp_path / "out"))
    assert ended.code == 0, ended.out + ended.err
    rows = pyarrow.parquet.read_table(tmp_path / "out" / "invocations.parquet")
    assert rows["outcome"].to_pylist() == ["ok"] * 41, rows["error"].to_pylist()[-1]
    for services in rows["services"].to_pylist():
        (documents_,) = services
        assert documents_["service"] == "documents"
        assert documents_["sent"] > 0 < documents_["received"]
    assert not list((state_home / "services").iterdir())
    assert not list((state_home / "journal").iterdir())


@pytest.mark.skipif(
    "UNCIA_TEST_SUITES" not in os.environ, reason="make test-suites kills a whole run"
)
def test_a_killed_run_leaves_only_what_clean_removes(
    tmp_path: Path,
    uncia: Uncia,
    state_home: Path,
    server: redis_server.Server,
    endpoint: ServiceEndpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THE_PASSWORD", server.password)
    documents.seed(endpoint, {"others": 1})
    options = f"{{address: 'redis://{server.address}', password_variable: THE_PASSWORD}}"
    path = written(tmp_path, options, "duration: 10min")
    process = uncia("run", path, "--out", tmp_path / "out")
    with documents.connection(server.address, endpoint.environment) as connection:
        wait_until(lambda: connection.call("DBSIZE") == 8, process)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert connection.call("DBSIZE") == 8
        ended = finish(uncia("clean"))
        assert ended.code == 0, ended.out + ended.err
        assert connection.call("DBSIZE") == 4
    assert list(documents.below(endpoint)) == [("others", 1, 1)]
    assert not list((state_home / "journal").iterdir())
    assert server.password not in (tmp_path / "out" / "run.yaml").read_text()


def test_a_server_of_a_killed_run_is_ended(tmp_path: Path, state_home: Path) -> None:
    journal = Journal("r", tmp_path)
    service = documents.connect(documents.Options(), Context("r", journal))
    service.start()
    resources = journal.outstanding
    (process,) = processes.with_argument(
        str(redis_server.configuration(state_home / "services" / "r-documents")), "redis-server"
    )
    # Another program that names the file, as an editor would.
    named = str(redis_server.configuration(state_home / "services" / "r-documents"))
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", named])
    assert documents.clean(resources, print) == resources
    assert processes.identify(process.pid) != process
    assert other.poll() is None
    other.kill()
    other.wait()
    assert not list((state_home / "services").iterdir())
    service.close()
    journal.close()


def test_clean_without_the_password_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_PASSWORD", "known")
    options = documents.Options(
        address="redis://h:1", user="u", password_variable="THE_PASSWORD", memory=None
    )
    detail = {"service": "documents", "options": options.model_dump()}
    monkeypatch.delenv("THE_PASSWORD")
    with pytest.raises(UnciaError, match="THE_PASSWORD is not set"):
        documents.clean([Resource("services", "prefix", PREFIX, detail)], print)


def test_only_keys_below_the_prefix_are_removed(
    server: redis_server.Server, endpoint: ServiceEndpoint
) -> None:
    documents.seed(endpoint, {f"a/{number:04}": number for number in range(2_500)} | {"b": 1})
    listed = list(documents.below(endpoint, "a/"))
    assert [contents for _, _, contents in listed] == list(range(2_500))
    assert [revision for _, revision, _ in listed] == list(range(1, 2_501))
    with documents.connection(server.address, endpoint.environment) as connection:
        # What the prefix would match if it were a pattern.
        connection.call("SET", "uncia:r1x:documents", "kept")
        documents.empty(server.address, endpoint.environment, PREFIX)
        assert connection.call("KEYS", "*") == ["uncia:r1x:documents"]


def test_a_transaction_that_names_a_document_twice_is_refused(
    server: redis_server.Server, endpoint: ServiceEndpoint
) -> None:
    documents.seed(endpoint, {"b": 1})
    names = documents.keys(PREFIX)
    steps = ("put", "a", "0", "1", "put", "c", "0", "1", "put", "a", "0", "2")
    with documents.connection(server.address, endpoint.environment) as connection:
        script = endpoint.environment[documents.SCRIPT]
        with pytest.raises(resp.RefusedError, match="a is named twice in one transaction"):
            connection.call("EVALSHA", script, len(names), *names, "transact", "", *steps)
    assert list(documents.below(endpoint)) == [("b", 1, 1)]


def test_a_full_server_takes_nothing_of_a_transaction(endpoint: ServiceEndpoint) -> None:
    half = "x" * (1 << 20)
    pairs = [{f"{number}/a": half, f"{number}/b": half} for number in range(20)]
    with pytest.raises(UnciaError, match="maxmemory"):
        any(map(partial(documents.seed, endpoint), pairs))
    kept = [key for key, _, _ in documents.below(endpoint)]
    assert kept
    assert kept[::2] == [key.replace("b", "a") for key in kept[1::2]]


def test_a_server_that_ends_or_refuses_is_a_sentence(
    server: redis_server.Server,
    endpoint: ServiceEndpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("REDIS_PASSWORD", raising=False)
    with pytest.raises(resp.RefusedError, match="NOAUTH"):
        documents.prepare(server.address, {})
    with pytest.raises(resp.RefusedError, match="WRONGPASS"):
        documents.prepare(server.address, {documents.PASSWORD: "wrong"})
    with pytest.raises(UnciaError, match="NOAUTH") as refused:
        documents.served(server.address)
    assert refused.value.hint is not None
    assert documents.PASSWORD in refused.value.hint
    options = documents.Options(address=f"redis://{server.address}", user=None, memory=None)
    journal = Journal("r", tmp_path)
    with pytest.raises(UnciaError, match="NOAUTH") as refused:
        documents.connect(options, Context("r", journal)).start()
    journal.close()
    assert refused.value.hint == "Set REDIS_PASSWORD to the password of its user."
    with documents.connection(server.address, endpoint.environment) as connection:
        server.process.kill()
        server.process.wait()
        with pytest.raises(UnciaError, match="does not answer"):
            connection.call("PING")
    with pytest.raises(UnciaError, match="cannot be reached"):
        documents.seed(endpoint, {"a": 1})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("services: {documents: {}}", "", "there is no service 'documents'"),
        (", reach: [documents]", "", "services.documents: no function uses this service"),
        ("{documents: {}}", "{documents: {address: 'http://h'}}", "is no address of a server"),
        ("{documents: {}}", "{documents: {address: 'redis://h:99999'}}", "is no address"),
        ("{documents: {}}", "{documents: {address: 'redis://a:b@h'}}", "is no address"),
        ("{documents: {}}", "{documents: {user: u}}", "a user is of a server that exists"),
        ("{documents: {}}", "{documents: {memory: 1KB}}", "memory"),
        ("{documents: {}}", "{documents: {address: 'redis://h', memory: 1GB}}", "of the run's own"),
        ("{documents: {}}", "{documents: {address: 'redis://h', user: u}}", "needs a password"),
    ],
)
def test_mistakes_are_named_with_their_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    names_its_place(written(tmp_path), old, new, message)


def test_mistakes_of_functions_without_the_client_are_found_before_the_run(tmp_path: Path) -> None:
    path = written(tmp_path)
    plan_of(path)
    form = tmp_path / "add" / "function.yaml"
    form.write_text(form.read_text().replace(", requirements: [redis]", ""))
    with pytest.raises(UnciaError, match=r"imports uncia_documents, which needs redis") as error:
        plan_of(path)
    assert "uncia functions lock" in str(error.value.hint)
