"""OpenWhisk's actions through its REST API, on a small server of it that really runs them."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import socket
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest
from openwhisk.server import KEY, Rules, Whisk, serving
from patience import scaled
from pydantic import ValidationError

from uncia import record
from uncia.errors import RunFailedError, UnciaError
from uncia.platforms import Context, FunctionSpec, openwhisk
from uncia.platforms.journal import Journal
from uncia.platforms.openwhisk import kind_of, row_of
from uncia.runs.folder import read_run

Uncia = Callable[..., "Popen[str]"]

PYTHON = """
import os, time

def handler(event, context):
    print("said")
    if "sleep" in event:
        time.sleep(event["sleep"])
    if "raise" in event:
        raise ValueError(event["raise"])
    if "exit" in event:
        os._exit(event["exit"])
    left = context.get_remaining_time_in_millis()
    given = {"event": event, "given": os.environ["GIVEN"], "left": left}
    return event["answer"] if "answer" in event else given | {"id": context.aws_request_id}
"""
NODE = """
exports.handler = async (event, context) => {
  if (event.raise) throw new RangeError(event.raise);
  return { event, given: process.env.GIVEN, id: context.awsRequestId };
};
"""


def spec(name: str, **changes: Any) -> FunctionSpec:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("handler.py", PYTHON)
        archive.writestr("handler.js", NODE)
        archive.writestr("package.json", '{"name": "mine", "main": "other.js"}')
    given = {"runtime": "python", "handler": "handler.handler", "environment": {"GIVEN": "a"}}
    return FunctionSpec(name, buffer.getvalue(), **{**given, **changes})


@pytest.fixture
def journal(state_home: Path) -> Iterator[Journal]:
    del state_home
    journal = Journal("openwhisk", None)
    yield journal
    journal.close()


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("__OW_API_KEY", KEY)
    monkeypatch.delenv("__OW_API_HOST", raising=False)
    monkeypatch.setenv("WSK_CONFIG_FILE", str(tmp_path / "none"))
    return KEY


def connect(journal: Journal, host: str, **options: Any) -> openwhisk.OpenWhiskPlatform:
    form = openwhisk.Options.model_validate({"kind": "openwhisk", "host": host, **options})
    return openwhisk.connect(form, Context("run", journal))


def test_actions_are_made_run_and_removed(journal: Journal, key: str) -> None:
    with serving() as (url, whisk):
        platform = connect(journal, url)
        assert platform.start() == []
        python = platform.deploy(spec("f", memory=256 << 20, timeout=round(scaled(9) * 1e9)))
        deployed = whisk.actions["f"]
        assert deployed["limits"]["memory"] == 256
        assert deployed["limits"]["timeout"] == round(scaled(9_000))
        answers = [platform.invoke(python, {"n": n}) for n in range(2)]
        first, second = (json.loads(answer.body) for answer in answers)
        assert (first["event"], first["given"], second["event"]) == ({"n": 0}, "a", {"n": 1})
        assert 0 < first["left"] <= round(scaled(9_000))
        failed = platform.invoke(python, {"raise": "no"})
        assert (failed.status, json.loads(failed.body)) == (502, {"error": "ValueError: no"})
        other = platform.invoke(python, {"answer": [1]})
        assert (other.status, "did not return a dict" in str(other.body)) == (502, True)
        rows = platform.collect().invocations.to_pylist()
        assert [row["start"] for row in rows] == ["warm", "warm", "warm", "cold"]
        assert [row["outcome"] for row in rows] == ["function_error"] * 2 + ["ok"] * 2
        assert rows[1]["error"] == "application error: ValueError: no"
        cold, warm = rows[3], rows[2]
        assert cold["request_id"] == first["id"]
        assert cold["initialization"] > 0
        assert warm["initialization"] is None
        assert cold["queued"] > 0
        for row in rows:
            assert row["ended"] - row["started"] == row["execution"]
            assert row["allocated_memory"] == 256 << 20
        assert platform.collect().invocations.num_rows == 0
        # A container is used again after an application error alone.
        assert platform.invoke(python, {"exit": 3}).status == 502
        assert platform.invoke(python, {}).status == 200
        starts = platform.collect().invocations.column("start").to_pylist()
        assert starts == ["cold", "cold"]
        if shutil.which("node"):
            node = platform.deploy(spec("g", runtime="nodejs20.x"))
            answer = json.loads(platform.invoke(node, {"n": 3}).body)
            assert (answer["event"], answer["given"]) == ({"n": 3}, "a")
            failed = platform.invoke(node, {"raise": "no"})
            assert json.loads(failed.body) == {"error": "RangeError: no"}
        platform.remove(python)
        assert "f" not in whisk.actions
        platform.close()
        assert (whisk.actions, journal.outstanding) == ({}, [])


def test_an_action_that_takes_too_long_is_a_timeout(journal: Journal, key: str) -> None:
    with serving() as (url, _):
        platform = connect(journal, url)
        deployment = platform.deploy(spec("f", timeout=round(scaled(0.5) * 1e9)))
        answer = platform.invoke(deployment, {"sleep": scaled(30)})
        assert b"exceeded its time limits" in answer.body
        (row,) = platform.collect().invocations.to_pylist()
        assert row["outcome"] == "timeout"
        platform.close()


def test_records_are_listed_page_by_page_and_once(
    journal: Journal, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openwhisk, "_PAGE", 2)
    with serving() as (url, whisk):
        platform = connect(journal, url, records_within="2500ms")
        deployment = platform.deploy(spec("f", timeout=7_000_000_000))
        for _ in range(5):
            platform.invoke(deployment, {})
        ids = platform.collect().invocations.column("invocation").to_pylist()
        assert len(set(ids)) == len(ids) == 5
        assert [f"skip={n}" in " ".join(whisk.requests) for n in (0, 2, 4, 6)] == [True] * 3 + [
            False
        ]
        platform.invoke(deployment, {})
        assert platform.collect().invocations.num_rows == 1
        # As far back as records may be late and an invocation may take.
        newest = max(record["start"] for _, record in whisk.activations)
        platform.collect()
        assert f"since={newest - 2_500 - 7_000}" in whisk.requests[-1]
        platform.close()


def test_what_openwhisk_refuses_is_a_sentence(
    journal: Journal, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(Rules(payload=1_000)) as (url, whisk):
        platform = connect(journal, url)
        with pytest.raises(RunFailedError, match=r"HTTP 400: .*memory 4096 MB exceeds allowed"):
            platform.deploy(spec("f", memory=4096 << 20))
        with pytest.raises(RunFailedError, match=r"HTTP 400: .*kind 'python:2.7' not in Set"):
            platform.deploy(spec("f", runtime="python2.7"))
        with pytest.raises(UnciaError, match="ruby: functions on OpenWhisk are of python and node"):
            platform.deploy(spec("f", runtime="ruby"))
        whisk.put("f", {"exec": {"kind": "python:3", "code": ""}}, overwrite=False)
        with pytest.raises(RunFailedError, match="HTTP 409: resource already exists"):
            platform.deploy(spec("f"))
        # Somebody else's stays.
        platform.close()
        assert list(whisk.actions) == ["f"]
        assert journal.outstanding == []
        deployment = platform.deploy(spec("h"))
        assert platform.invoke(deployment, {"long": "x" * 2_000}).status == 413
        platform.remove(deployment)
        monkeypatch.setenv("__OW_API_KEY", "somebody:else")
        with pytest.raises(RunFailedError) as refused:
            connect(journal, url).start()
        assert refused.value.message == (
            f"the OpenWhisk at {url} refuses the credentials: HTTP 401: The supplied authentication"
            " is invalid."
        )
        assert "somebody" not in str(refused.value)
    with pytest.raises(RunFailedError, match=f"no OpenWhisk answers at {url}: Connection refused"):
        connect(journal, url).start()
    monkeypatch.setenv("__OW_API_KEY", "nocolon")
    with pytest.raises(UnciaError, match=r"is a key that is not UUID:KEY") as refused:
        connect(journal, url)
    assert "nocolon" not in str(refused.value)
    monkeypatch.delenv("__OW_API_KEY")
    with pytest.raises(UnciaError, match="there are no credentials for the OpenWhisk at"):
        connect(journal, url)
    with pytest.raises(UnciaError, match="no OpenWhisk is named"):
        openwhisk.connect(openwhisk.Options(kind="openwhisk"), Context("run", journal))
    for host, wrong in (
        ("https://u:k@host", "Value error, it holds credentials"),
        ("ftp://x", "is no host such"),
        ("http://127.0.0.1:99999", "the port of .* is no number from 1 to 65535"),
        ("http://127.0.0.1:0", "the port of .* is no number"),
        ("http://127.0.0.1:http", "the port of .* is no number"),
    ):
        with pytest.raises(ValidationError, match=wrong):
            openwhisk.Options(kind="openwhisk", host=host)


def test_a_host_that_never_answers_is_given_up_after_the_first_question(
    journal: Journal, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openwhisk, "FIRST_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(RunFailedError, match=f"no OpenWhisk answers at {url}: timed out"):
            connect(journal, url).start()


def test_the_file_of_the_command_wsk_names_host_and_key(
    journal: Journal, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("__OW_API_KEY")
    file = tmp_path / "wskprops"
    monkeypatch.setenv("WSK_CONFIG_FILE", str(file))
    with serving() as (url, _):
        file.write_text(f"# mine\nAPIHOST={url}\nAUTH={KEY}\n", encoding="utf-8")
        platform = openwhisk.connect(openwhisk.Options(kind="openwhisk"), Context("run", journal))
        assert platform.start() == []


def test_runtimes_have_openwhisks_names() -> None:
    names = {"python": "python:default", "python3.11": "python:3.11", "nodejs20.x": "nodejs:20"}
    assert {name: kind_of(name) for name in names} == names
    assert kind_of("node") == "nodejs:default"


def test_a_record_without_annotations_is_a_row_with_what_it_says() -> None:
    record = {"activationId": "a", "name": "f", "start": 1_000, "end": 1_007}
    response = {"status": "application error", "result": {"error": {"name": "E", "message": "m"}}}
    row = row_of({**record, "response": response})
    assert (row["queued"], row["allocated_memory"], row["execution"]) == (None, None, 7_000_000)
    assert row["error"] == "application error: E: m"
    odd = {"status": "whisk internal error", "result": {"error": {"code": 3}}}
    assert row_of({**record, "response": odd})["error"] == 'whisk internal error: {"code": 3}'


def test_an_output_that_the_function_says_is_wrong_is_an_error_of_it() -> None:
    record = {"activationId": "a", "name": "f", "start": 1_000, "end": 1_007}
    outcomes = []
    for report in ({"valid": False}, {"valid": True}, {}, "text"):
        response = {"status": "success", "result": {"uncia": report}}
        row = row_of({**record, "response": response})
        outcomes.append((row["outcome"], row["error"]))
    wrong = "the function's own check says that its output is wrong"
    assert outcomes == [("function_error", wrong), *[("ok", None)] * 3]


def test_answers_and_records_are_read_alike() -> None:
    """As `crates/load` reads the answers of the same activations."""
    record = {"activationId": "a", "name": "f", "start": 1_000, "end": 1_007}
    path = Path(__file__).parents[1] / "data" / "openwhisk-answers.json"
    examples = json.loads(path.read_text())
    assert examples
    for example in examples:
        row = row_of({**record, "response": example["record"]})
        assert row["outcome"] == example["outcome"], example
        if "error" in example:
            assert example["error"] in row["error"]
        else:
            assert row["error"] is None


FILE = """\
name: whisk
seed: 3
platform: {kind: openwhisk, host: "%s", %s}
functions:
  f: {source: ./f, memory: 256MB, environment: {GIVEN: a}}
experiments:
  e:
    function: f
    parameters: %s
    arrivals: {kind: constant, rate: %s, duration: 1s}
    expect: {function_error: allowed, throttled: allowed}
"""


def carry_out(
    uncia: Uncia, folder: Path, host: str, parameters: str, rate: str, options: str = ""
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run an experiment; its rows and its warnings."""
    (folder / "f").mkdir()
    (folder / "f" / "handler.py").write_text(PYTHON, encoding="utf-8")
    (folder / "file.yaml").write_text(FILE % (host, options, parameters, rate), encoding="utf-8")
    process = uncia("run", folder / "file.yaml", "--out", folder / "run")
    out, err = process.communicate(timeout=scaled(120))
    assert process.returncode == 0, err
    written = [path.read_bytes() for path in (folder / "run").rglob("*") if path.is_file()]
    # As it is, and as it is sent.
    for secret in (KEY.partition(":")[2].encode(), base64.b64encode(KEY.encode())):
        assert not any(secret in text for text in (out.encode(), err.encode(), *written))
    return record.read(folder / "run").to_pylist(), read_run(folder / "run")["warnings"]


def test_a_run_has_the_client_s_rows_with_what_openwhisk_recorded(
    uncia: Uncia, key: str, tmp_path: Path
) -> None:
    # The records come late, and are waited for.
    with serving(Rules(record_delay_s=2)) as (url, whisk):
        rows, warnings = carry_out(uncia, tmp_path, url, "{n: 1}", "10/s")
        assert whisk.actions == {}
    assert "not in the platform's log" not in " ".join(warnings)
    assert len(rows) == 10
    assert {row["outcome"] for row in rows} == {"ok"}
    assert "cold" in {row["start"] for row in rows} <= {"cold", "warm"}
    for row in rows:
        assert row["function"] == "f"
        assert row["invocation"] != row["request_id"]
        assert None not in (row["queued"], row["execution"], row["started"], row["received"])
        assert row["allocated_memory"] == 256 << 20
        assert row["received"] - row["sent"] > 0
        # By one clock, here: in whole milliseconds, which are cut off.
        assert row["sent"] - 1_000_000 <= row["started"] <= row["ended"] <= row["received"]


def test_failures_are_rows_whether_refused_or_accepted_before(
    uncia: Uncia, key: str, tmp_path: Path
) -> None:
    with serving(Rules(concurrent=1)) as (url, _):
        parameters = "{sleep: 0.4, raise: no}"
        rows, warnings = carry_out(uncia, tmp_path, url, parameters, "10/s", "blocking: false")
    accepted = [row for row in rows if row["status"] == 202]
    refused = [row for row in rows if row["status"] == 429]
    assert accepted
    assert len(accepted) + len(refused) == len(rows) == 10
    for row in accepted:
        assert row["outcome"] == "function_error"
        assert row["error"] == "application error: ValueError: no"
        assert row["execution"] >= 399_000_000
        # When it was accepted is not when the function had answered.
        assert (row["first_byte"], row["received"]) == (None, None)
    assert any("accepted and not waited for (HTTP 202)" in warning for warning in warnings)
    sentence = "HTTP 429: Too many concurrent requests in flight (count: 2, allowed: 1)."
    for row in refused:
        assert (row["outcome"], row["error"], row["start"]) == ("throttled", sentence, None)


def test_records_that_never_come_are_a_warning(uncia: Uncia, key: str, tmp_path: Path) -> None:
    with serving(Rules(record_delay_s=3_600)) as (url, _):
        rows, warnings = carry_out(uncia, tmp_path, url, "{}", "3/s", "records_within: 500ms")
    assert [row["outcome"] for row in rows] == ["ok"] * 3
    assert {row["execution"] for row in rows} == {None}
    assert "e: 3 answered requests are not in the platform's log" in warnings


def test_answers_that_name_no_activation_are_a_warning_and_their_starts_are_not_known(
    uncia: Uncia, key: str, tmp_path: Path
) -> None:
    with serving(Rules(names_activations=False)) as (url, _):
        rows, warnings = carry_out(uncia, tmp_path, url, "{}", "3/s", "records_within: 500ms")
    assert [(row["outcome"], row["start"]) for row in rows] == [("ok", None)] * 3
    assert "e: 3 answered requests are not in the platform's log" in warnings
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["experiments"]["e"]["cold"] is None


def test_clean_removes_what_a_crashed_run_left(
    key: str, state_home: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    del state_home
    with serving() as (url, whisk):
        journal = Journal("crashed", None)
        connect(journal, url).deploy(spec("f"))
        journal.close()
        assert list(whisk.actions) == ["f"]
        code, out, err = command("clean")
        assert (code, whisk.actions) == (0, {}), out + err
        # What is gone is no error, and what cannot be reached stays in the journal.
        journal = Journal("gone", None)
        connect(journal, url).deploy(spec("f"))
        journal.close()
        whisk.delete("f")
        assert command("clean")[0] == 0
        journal = Journal("unreachable", None)
        connect(journal, url).deploy(spec("f"))
        journal.close()
    code, out, err = command("clean")
    assert code != 0
    assert "no OpenWhisk answers" in out + err


def test_apaches_own_client_takes_the_server_for_an_openwhisk(tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(tmp_path)]
    subprocess.run([*npm, "openwhisk@3.21.9"], check=True, capture_output=True)
    archive = tmp_path / "action.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("__main__.py", "def main(args):\n    return {'zipped': True}\n")
    client = Path(__file__).parent / "openwhisk" / "client.cjs"
    with serving() as (url, _):
        ran = subprocess.run(
            ["node", client, url, KEY, archive],
            env={**os.environ, "NODE_PATH": str(tmp_path / "node_modules")},
            capture_output=True,
            text=True,
            timeout=scaled(60),
            check=False,
        )
    assert ran.returncode == 0, ran.stderr


def test_the_server_is_ended_with_its_containers() -> None:
    with serving() as (_, whisk):
        assert isinstance(whisk, Whisk)
        action = {"exec": {"kind": "python:3", "code": "def main(args): return {}"}}
        whisk.put("f", action, overwrite=False)
        whisk.invoke("f", {}, blocking=True)
        ((container,),) = whisk._idle.values()
    assert container.process.poll() is not None
    assert not container.folder.exists()
