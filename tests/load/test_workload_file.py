"""The workload file: what it says reaches the servers, and what is wrong is told with its place."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pyarrow as pa
import pytest
from load_helpers import Server, finish

import uncia as package
from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.forms import Form
from uncia.workload import model
from uncia.workload.model import Workload
from uncia.workload.resolve import prepare

Uncia = Callable[..., "Popen[str]"]

FULL = """\
name: shop
description: Everything that a file can say.
seed: 7
connections: {pool: 4}
timeout: 10s
connect_timeout: 1s
first_byte_timeout: 5s
max_connections: 100
tls: {ca_file: ca.pem, insecure: false}
stop: {error_budget: 5%, lag_p99: 1ms, slowdown: 3}
rtt_probes: 3
functions:
  cart:
    url: http://127.0.0.1:1/cart/{{user}}
    method: PUT
    headers: {content-type: application/json}
    query: {n: "{{number}}"}
    body: {template: '{"user": {{user}}}'}
    fields:
      user: {kind: integer, min: 1, max: 100}
      colour: {kind: choice, values: [red, green]}
      word: {kind: text, length: 8}
      id: {kind: uuid}
    http: 1.1
    sign: {aws_sigv4: {region: eu-west-1}}
  pay:
    urls: [http://127.0.0.1:2/, http://127.0.0.1:3/]
    unix_socket: pay.sock
    body: {random: 64KB}
    http: "2"
streams:
  - function: cart
    arrivals: {kind: poisson, rate: 10/s, duration: 10s}
  - function: cart
    start: 5s
    arrivals: {kind: burst, sizes: [5]}
  - function: pay
    closed: {clients: 3, think: 10ms, duration: 10s, requests: 50}
"""


def test_everything_that_a_file_says_reaches_the_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "the-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "the-token")
    file = tmp_path / "shop.yaml"
    file.write_text(FULL)
    workload, _ = model.load(file)
    prepared = prepare(workload, tmp_path)
    answer = prepared.load.engine()
    assert (answer["run"], answer["experiment"], answer["seed"]) == ("shop", "shop", 7)
    assert answer["connections"] == {"pool": 4}
    assert answer["tls"] == {"ca_file": str(tmp_path / "ca.pem"), "insecure": False}
    assert answer["stop_rules"] == {"error_budget": 0.05, "lag_p99_ns": 1_000_000, "slowdown": 3.0}
    assert (answer["total_timeout_ns"], answer["connect_timeout_ns"]) == (10**10, 10**9)
    assert (answer["first_byte_timeout_ns"], answer["max_connections"]) == (5 * 10**9, 100)
    assert answer["rtt_probes"] == 3
    first, second, third = answer["streams"]
    assert first["targets"] == [{"function": "cart", "url": "http://127.0.0.1:1/cart/{{user}}"}]
    assert (first["method"], first["query"]) == ("PUT", {"n": "{{number}}"})
    assert first["body"] == {"template": '{"user": {{user}}}'}
    assert first["fields"] == {
        "user": {"kind": "integer", "min": 1, "max": 100},
        "colour": {"kind": "choice", "values": ["red", "green"]},
        "word": {"kind": "text", "length": 8},
        "id": {"kind": "uuid"},
    }
    assert first["sign"]["aws_sigv4"] == {
        "region": "eu-west-1",
        "service": "lambda",
        "access_key_id": "AKIDEXAMPLE",
        "secret_access_key": "the-secret",
        "session_token": "the-token",
    }
    assert "http_version" not in first
    assert (first["label"], second["label"]) == ("cart", "cart#2")
    assert second["start_ns"] == 5 * 10**9
    assert third["closed"] == {
        "clients": 3,
        "think_ns": 10_000_000,
        "duration_ns": 10**10,
        "requests": 50,
    }
    assert "arrivals" not in third
    assert third["http_version"] == "2"
    assert third["body"] == {"random_bytes": 65_536}
    assert third["targets"] == [
        {
            "function": f"pay-{number}",
            "url": f"http://127.0.0.1:{number + 2}/",
            "unix_socket": str(tmp_path / "pay.sock"),
        }
        for number in range(2)
    ]
    assert prepared.closed
    assert prepared.expected == 155
    # Whoever prints it in an error message or a log gives nothing away.
    assert "the-secret" not in repr(prepared)
    assert "the-token" not in repr(prepared)


def test_the_form_writes_what_it_reads(tmp_path: Path) -> None:
    workload = model.check(yamlio.load(FULL))
    again = Workload.model_validate(workload.model_dump(mode="json", exclude_none=True))
    assert again == workload


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("name: shop", "nam: shop", "shop.yaml:1: nam: unknown key, did you mean name?"),
        ("seed: 7", "seed: -7", "shop.yaml:3: seed: must be greater than or equal to 0"),
        ("{pool: 4}", "{pool: 0}", "shop.yaml:4: connections.pool: must be greater than"),
        ("{pool: 4}", "sometimes", "shop.yaml:4: connections: "),
        ("timeout: 10s", "timeout: 10", "shop.yaml:5: timeout: 10 has no unit"),
        ("error_budget: 5%", "error_budget: 5", "shop.yaml:10: stop.error_budget: 5 is not a perc"),
        ("error_budget: 5%", "error_budget: 101%", "shop.yaml:10: stop.error_budget: '101%' is"),
        ("slowdown: 3", "slowdown: .nan", "shop.yaml:10: stop.slowdown: must be a finite number"),
        ("method: PUT", "method: PUSH", "shop.yaml:15: functions.cart.method: 'PUSH' is not known"),
        ("http: 1.1", "http: 3", "functions.cart.http: 3 is not known"),
        ("body: {random: 64KB}", "body: {}", "functions.pay.body: a body has exactly one of"),
        ("{random: 64KB}", "{random: 64}", "functions.pay.body.random: 64 has no unit"),
        ("max: 100", "max: 0", "functions.cart.fields.user: max (0) is below min (1)"),
        ("kind: uuid", "kind: guid", "functions.cart.fields.id.kind: "),
        ("rate: 10/s", "rate: NaN/s", "streams[0].arrivals.rate: 'NaN/s' is not a rate"),
        ("duration: 10s}\n", "duration: -10s}\n", "streams[0].arrivals.duration: '-10s' is not"),
        ("kind: poisson", "kind: fish", "streams[0].arrivals.kind: "),
        ("function: pay", "function: play", "streams[2].function: there is no function 'play'"),
        ("duration: 10s, requests: 50", "", "streams[2].closed: a closed loop needs"),
        ("{aws_sigv4: {region: eu-west-1}}", "{aws_sigv4: {}}", "sign.aws_sigv4.region"),
        ("url: http:", "url: ftp:", "functions.cart.url: 'ftp://127.0.0.1:1/cart/{{user}}' is not"),
    ],
)
def test_mistakes_are_told_with_file_line_and_key(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    file = tmp_path / "shop.yaml"
    text = FULL.replace(before, after, 1)
    assert text != FULL
    file.write_text(text)
    with pytest.raises(UnciaError) as raised:
        model.load(file)
    assert message in str(raised.value).replace(f"{tmp_path}/", "")
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("tail", ["", "streams: []\n"])
def test_a_file_that_sends_nothing_is_refused(tail: str) -> None:
    with pytest.raises(UnciaError, match="a workload needs streams, a replay, or both"):
        model.check(yamlio.load("name: n\nfunctions: {f: {url: 'http://h/'}}\n" + tail))


def test_a_mix_with_bodies_from_files(uncia: Uncia, tmp_path: Path) -> None:
    (tmp_path / "body.bin").write_bytes(bytes(range(256)))
    out = tmp_path / "rows.parquet"
    with Server() as result, Server() as other:
        (tmp_path / "mix.yaml").write_text(
            f"name: mix\nfunctions:\n  a: {{url: '{result.url}', body: {{file: body.bin}}}}\n"
            f"  b: {{url: '{other.url}', headers: {{x-one: two}}}}\n"
            "streams:\n"
            "  - {function: a, arrivals: {kind: constant, rate: 50/s, duration: 200ms}}\n"
            "  - {function: b, start: 100ms, arrivals: {kind: burst, sizes: [5]}}\n"
        )
        # Run from elsewhere: names in the file are relative to it.
        ended = finish(uncia("load", tmp_path / "mix.yaml", "--out", out, cwd=Path("/")))
        assert ended.code == 0, ended.err
        assert [request.body for request in result.requests] == [bytes(range(256))] * 10
        assert [request.line.split()[0] for request in result.requests] == ["POST"] * 10
        assert {request.headers["x-one"] for request in other.requests} == {"two"}
        assert [request.line.split()[0] for request in other.requests] == ["GET"] * 5
    rows = record.read(out)
    assert rows.column("function").to_pylist().count("a") == 10
    assert set(rows.column("run").to_pylist()) == {"mix"}


def test_options_of_a_url_do_not_go_with_a_file(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(FULL)
    code, _, err = command("load", file, "--rate", "1/s", "--method", "GET")
    assert code == 2
    assert "rate, method: with a workload file, this is a key of the file, not an option" in err
    code, _, err = command("load", tmp_path / "none.yaml")
    assert code == 2
    assert "there is no such file" in err


def test_a_body_file_that_is_missing(tmp_path: Path) -> None:
    workload = {
        "name": "w",
        "functions": {"f": {"url": "http://127.0.0.1:1/", "body": {"file": "none.bin"}}},
        "streams": [{"function": "f", "arrivals": {"kind": "burst", "sizes": [1]}}],
    }
    with pytest.raises(UnciaError, match=r"the body of f: none\.bin cannot be read: No such file"):
        package.load(workload)


def test_without_credentials_nothing_is_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    shape = {"rate": "1/s", "duration": "1s", "sign_aws": "us-east-1/lambda"}
    with pytest.raises(UnciaError, match="there are no AWS credentials to sign with"):
        package.load("http://127.0.0.1:1/", **shape)  # type: ignore[arg-type]
    # A schedule needs none.
    assert package.load("http://127.0.0.1:1/", **shape, dry_run=True).num_rows == 1  # type: ignore[arg-type]


def test_an_earlier_run_is_replayed_with_its_times(tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.parquet"
    with Server() as server:
        mix = {
            "name": "first",
            "functions": {"a": {"url": server.url}, "b": {"url": server.url}},
            "streams": [
                {
                    "function": "a",
                    "arrivals": {"kind": "poisson", "rate": "50/s", "duration": "1s"},
                },
                {"function": "b", "arrivals": {"kind": "burst", "sizes": [3]}},
            ],
        }
        first = package.load(mix, out=earlier)
        again = {
            "name": "again",
            "functions": {"only": {"url": server.url}},
            "replay": {"table": str(earlier), "speed": 2.0, "map": "only"},
        }
        second = package.load(again)
    begin = min(first.column("scheduled").to_pylist())
    due = sorted((time - begin) // 2 for time in first.column("scheduled").to_pylist())
    assert second.column("scheduled").to_pylist() == due
    assert set(second.column("function").to_pylist()) == {"only"}
    halves = {**again, "functions": {"a": {"url": "http://127.0.0.1:1/"}}}
    halves["replay"] = {"table": str(earlier)}
    with pytest.raises(UnciaError, match=r"replay: no function here replaces 'b' of "):
        package.load(halves)


def test_replayed_functions_are_mapped_one_by_one(tmp_path: Path) -> None:
    table = tmp_path / "t.parquet"
    names = ["x", "y", "x"]
    rows = pa.table(
        {
            "function": names,
            "invocation": ["1", "2", "3"],
            "attempt": [1, 1, 1],
            "scheduled": [0, 10, 20],
            "outcome": ["ok"] * 3,
        }
    )
    record.write(rows, table)
    workload = {
        "name": "w",
        "functions": {"f": {"url": "http://127.0.0.1:1/"}, "g": {"url": "http://127.0.0.1:1/"}},
        "replay": {"table": str(table), "map": {"x": "f", "y": "g"}},
    }
    result = package.load(workload, dry_run=True)
    assert result.column("function").to_pylist() == ["f", "g", "f"]
    assert result.column("scheduled").to_pylist() == [0, 10, 20]
    wrong = {**workload, "replay": {"table": str(table), "map": {"x": "f", "y": "h"}}}
    with pytest.raises(UnciaError, match=r"replay\.map\.y: there is no function 'h'"):
        package.load(wrong)


def test_the_schema_is_json_schema_and_knows_every_key(uncia: Uncia) -> None:
    ended = finish(uncia("schema", "workload"))
    assert ended.code == 0, ended.err
    schema = json.loads(ended.out)
    assert set(schema["properties"]) == set(Workload.model_fields)
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    "form",
    [
        model.Workload,
        model.Function,
        model.Stream,
        model.Closed,
        model.Chain,
        model.Stage,
        model.MappedReplay,
        model.Stop,
        model.Body,
        model.Tls,
        model.AwsSigV4,
        model.Pool,
    ],
    ids=lambda form: form.__name__,
)
def test_every_key_has_its_place_in_the_page(form: type[Form]) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/workload-file.md").read_text()
    missing = [
        key
        for key in form.model_fields
        if f"`{key}`" not in page and f"{{{key}: " not in page and f", {key}: " not in page
    ]
    assert missing == []
