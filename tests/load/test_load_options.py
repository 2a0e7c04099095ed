"""Options of a load on a URL: what they become, and how mistakes in them are told."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from load_helpers import Inside, Server

import uncia as package
from uncia import record
from uncia.errors import UnciaError
from uncia.workload import options
from uncia.workload.client import Share
from uncia.workload.resolve import prepare

NOWHERE = "http://127.0.0.1:1/"


def stream(**given: object) -> dict[str, object]:
    """The engine's only stream of a load on a URL."""
    load = prepare(options.from_url(NOWHERE, given), Path()).load
    (message,) = load.engine()["streams"]
    result: dict[str, object] = message
    return result


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate": "NaN/s", "duration": "1s"}, "rate: 'NaN/s' is not a rate"),
        ({"rate": "inf/s", "duration": "1s"}, "rate: 'inf/s' is not a rate"),
        ({"rate": "-1/s", "duration": "1s"}, "rate: '-1/s' is not a rate"),
        ({"rate": "0/s", "duration": "1s"}, "rate: '0/s' is no rate: it must be above zero"),
        ({"rate": "1/s", "duration": "-1s"}, "duration: '-1s' is not a duration"),
        ({"rate": "1/s", "duration": "0s"}, "duration: "),
        ({"rate": "1/s", "duration": "NaN"}, "duration: 'NaN' is not a duration"),
        ({"rate": "1/s"}, "constant arrivals need a duration"),
        ({}, "constant arrivals need a rate"),
        ({"arrivals": "sometimes", "rate": "1/s"}, "arrivals: 'sometimes' is not known"),
        ({"rate": "1/s", "duration": "1s", "sizes": [1]}, "constant arrivals have no sizes"),
        ({"rate": "1/s", "duration": "1s", "set": {"rate": "2/s"}}, "set: 'rate' has an option"),
        ({"rate": "1/s", "duration": "1s", "set": {"colour": 1}}, "arrivals have no colour"),
        ({"rate": "1/s", "duration": "1s", "timeout": "60"}, "timeout: '60' is not a duration"),
        ({"rate": "1/s", "duration": "1s", "connect_timeout": "0s"}, "connect-timeout: must be"),
        ({"rate": "1/s", "duration": "1s", "http": "3"}, "http: must be '1.1', '2' or 'auto'"),
        ({"rate": "1/s", "duration": "1s", "method": "PUSH"}, "method: must be 'GET'"),
        ({"rate": "1/s", "duration": "1s", "random_body": "64"}, "random-body: '64' is not a size"),
        ({"rate": "1/s", "duration": "1s", "random_body": "1KB", "body": "x"}, "has one body"),
        (
            {"rate": "1/s", "duration": "1s", "headers": {"a b": "c"}},
            "not the name of an HTTP head",
        ),
        ({"rate": "1/s", "duration": "1s", "headers": {"a": "b\r\nc"}}, "control character"),
        (
            {"rate": "1/s", "duration": "1s", "connections": "pool:0"},
            "connections: 'pool:0' is not",
        ),
        ({"rate": "1/s", "duration": "1s", "connections": "many"}, "allowed: reuse, fresh, pool:N"),
        ({"rate": "1/s", "duration": "1s", "sign_aws": "lambda"}, "sign-aws: 'lambda' is not like"),
        ({"rate": "1/s", "duration": "1s", "think": "1s"}, "think: only a closed loop has this"),
        ({"closed": 3}, "closed: a closed loop needs a duration or a number of requests"),
        ({"closed": 0, "duration": "1s"}, "closed: must be greater than or equal to 1, not 0"),
        ({"closed": 3, "duration": "1s", "think": "-1s"}, "think: '-1s' is not a duration"),
        ({"closed": 3, "duration": "1s", "rate": "1/s"}, "rate: a closed loop sends when answers"),
    ],
)
def test_mistakes_name_the_option(given: dict[str, object], message: str) -> None:
    with pytest.raises(UnciaError) as raised:
        options.from_url(NOWHERE, given)
    assert message in str(raised.value)


@pytest.mark.parametrize("url", ["127.0.0.1:80", "ftp://host/", "http://", "", "not a url"])
def test_what_is_no_url_is_told(url: str) -> None:
    with pytest.raises(UnciaError, match="is not an http:// or https:// address"):
        options.from_url(url, {"rate": "1/s", "duration": "1s"})


def test_options_reach_the_generator() -> None:
    answer = stream(
        rate="10/s", duration="1s", method="PATCH", headers={"a": "b"}, query={"c": "d"},
        body=b"\xff\x00", http="auto", unix_socket="/run/x.sock",
    )  # fmt: skip
    assert answer["method"] == "PATCH"
    assert (answer["headers"], answer["query"]) == ({"a": "b"}, {"c": "d"})
    assert answer["body"] == {"base64": "/wA="}
    assert answer["http_version"] == "auto"
    assert answer["targets"] == [{"function": "load", "url": NOWHERE, "unix_socket": "/run/x.sock"}]
    assert stream(rate="1/s", duration="1s", random_body="1KB")["body"] == {"random_bytes": 1024}
    assert stream(rate="1/s", duration="1s", body="text")["body"] == {"text": "text"}


def test_keys_of_arrivals_without_an_option_are_set() -> None:
    by_set = stream(arrivals="burst", set={"sizes": [1, 2], "interval": "2s", "bursts": 4})
    by_mapping = stream(arrivals={"kind": "burst", "sizes": [1, 2], "interval": "2s", "bursts": 4})
    assert by_set == by_mapping
    arrivals = by_set["arrivals"]
    assert isinstance(arrivals, dict)
    assert (arrivals["sizes"], arrivals["bursts"]) == ([1, 2], 4)


def test_a_closed_loop_without_an_end_in_time_has_one_in_requests() -> None:
    closed = stream(closed=4, requests=100, think="5ms")["closed"]
    assert isinstance(closed, dict)
    assert (closed["clients"], closed["requests"], closed["think_ns"]) == (4, 100, 5_000_000)
    assert closed["duration_ns"] > 10**17


def test_shares_are_read_as_people_count() -> None:
    assert options.share("1/3") == Share(0, 3)
    assert options.share("3/3") == Share(2, 3)
    for wrong in ("0/3", "4/3", "1", "1/0", "-1/3", "a/b", "1/3/5", ""):
        with pytest.raises(UnciaError, match="share: "):
            options.share(wrong)


def test_start_times_are_exact_and_have_a_zone() -> None:
    second = 1_777_636_800  # 2026-05-01T12:00:00Z
    for text, ns in [
        ("2026-05-01T12:00:00Z", 0),
        ("2026-05-01t12:00:00z", 0),
        ("2026-05-01 14:00:00+02:00", 0),
        ("2026-05-01T12:00:00.25Z", 250_000_000),
        ("2026-05-01T12:00:00.123456789Z", 123_456_789),
    ]:
        assert options.start(text) == second * 10**9 + ns
    moment = datetime(2026, 5, 1, 12, 0, 0, 5, tzinfo=UTC)
    assert options.start(moment) == second * 10**9 + 5_000
    for wrong in ("2026-05-01T12:00:00", "2026-05-01", "12:00Z", "2026-13-01T12:00:00Z", "now"):
        with pytest.raises(UnciaError, match="is not a time with its zone"):
            options.start(wrong)
    with pytest.raises(UnciaError, match="has no time zone"):
        options.start(datetime(2026, 5, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--header", "no colon"], "--header: 'no colon' is not of the form 'Name: value'"),
        (["--header", "a:b", "-H", "a: c"], "--header: 'a' is given twice"),
        (["--query", "nothing"], "--query: 'nothing' is not of the form NAME=VALUE"),
        (["--set", "x=["], "--set x:1: this is not valid YAML"),
        (["--body", "@/no/such/file"], "--body: /no/such/file cannot be read"),
        (["--quantiles", "50,abc"], "quantiles: 'abc' is not a percent"),
        (["--error-budget", "5"], "error-budget: '5' is not a percentage"),
        (["--max-slowdown", "1"], "max-slowdown: must be greater than 1"),
        (["--max-slowdown", "nan"], "max-slowdown: must be a finite number"),
        (["--max-lag", "0s"], "max-lag: must be greater than 0"),
        (["--share", "0/2"], "share: '0/2' is not like 2/3"),
        (["--out", "rows.csv"], "rows are written as *.parquet or *.arrows"),
        (["--dry-run"], "say where, with --out"),
    ],
)
def test_wrong_options_of_the_command_end_with_2(
    command: Callable[..., tuple[int, str, str]], arguments: list[str], message: str
) -> None:
    code, _, err = command("load", NOWHERE, "--rate", "1/s", "--duration", "1s", *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_headers_and_a_body_from_a_file_arrive(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\x00\xffraw")
    with Server() as server:
        ended = inside(
                "load", server.url, "--rate", "10/s", "--duration", "200ms", "-d",
                f"@{tmp_path}/body", "-H", "x-tight:1", "-H", "x-wide:  2 ", "-X", "PUT",
            )  # fmt: skip
        assert ended.code == 0, ended.err
        assert [request.body for request in server.requests] == [b"\x00\xffraw"] * 2
        first = server.requests[0]
    assert first.line.startswith("PUT / HTTP/1.1")
    assert (first.headers["x-tight"], first.headers["x-wide"]) == ("1", "2")


def test_query_fields_templates_and_random_bodies_arrive() -> None:
    with Server() as server:
        rows = package.load(
            {
                "name": "w",
                "seed": 5,
                "functions": {
                    "f": {
                        "url": f"{server.url}items/{{{{item}}}}",
                        "query": {"n": "{{number}}", "s": "a b&c"},
                        "headers": {"x-colour": "{{colour}}"},
                        "body": {"template": "<{{colour}}>"},
                        "fields": {
                            "item": {"kind": "integer", "min": 3, "max": 5},
                            "colour": {"kind": "choice", "values": ["red", "blue"]},
                        },
                    },
                    "g": {"url": server.url, "body": {"random": "3KB"}},
                },
                "streams": [
                    {
                        "function": name,
                        "arrivals": {"kind": "constant", "rate": "50/s", "duration": "400ms"},
                    }
                    for name in ("f", "g")
                ],
            }
        )
        requests = list(server.requests)
    assert set(rows.column("outcome").to_pylist()) == {"ok"}
    drawn = [request for request in requests if "items" in request.line]
    assert {request.line.split("/")[2].split("?")[0] for request in drawn} <= {"3", "4", "5"}
    assert all(request.body == f"<{request.headers['x-colour']}>".encode() for request in drawn)
    assert {request.headers["x-colour"] for request in drawn} == {"red", "blue"}
    numbers = {request.line.split("n=")[1].split("&")[0].split()[0] for request in drawn}
    assert numbers == {str(number) for number in range(20)}
    random = [request.body for request in requests if request not in drawn]
    assert {len(body) for body in random} == {3072}


def test_closed_loops_are_marked_in_rows_and_words(inside: Inside, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    with Server() as server:
        arguments = ("load", server.url, "--closed", "4", "--requests", "40", "--think", "1ms")
        ended = inside(*arguments, "--out", out)
        assert ended.code == 0, ended.err
        assert len(server.requests) == 40
        shared = package.load(server.url, closed=4, requests=40, processes=2)
    rows = record.read(out)
    assert set(rows.column("open_loop").to_pylist()) == {False}
    assert "Closed loop: a client sends again only when it has its answer" in ended.out
    assert shared.num_rows == 40
    assert len(set(shared.column("invocation").to_pylist())) == 40


def test_a_stop_rule_ends_with_1_and_keeps_the_rows(inside: Inside, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    with Server(lambda request: b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n") as server:
        ended = inside(
                "load", server.url, "--rate", "100/s", "--duration", "60s", "--error-budget", "1%",
                "--allow-failures", "--out", out, "--json",
            )  # fmt: skip
        sent = len(server.requests)
    assert ended.code == 1
    assert "stopped: " in ended.err
    result = ended.json()
    assert result["stopped"]["rule"] == "error_budget"
    assert 60 <= result["invocations"] == sent < 3000
    assert result["unsent"] == 6000 - sent


def test_connections_are_fresh_when_asked() -> None:
    with Server() as server:
        package.load(server.url, rate="50/s", duration="200ms", connections="fresh", rtt_probes=0)
        assert server.connections == 10
    with Server() as server:
        # With a limit, as on a busy machine all seven may be in use when another request is due.
        package.load(
            server.url, rate="50/s", duration="200ms", connections="pool:7", max_connections=7,
            rtt_probes=0,
        )  # fmt: skip
        assert server.connections == 7


def test_signed_requests_carry_the_signature_and_rows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "never-to-be-seen")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-to-be-sent")
    out = tmp_path / "rows.arrows"
    with Server() as server:
        package.load(
            server.url,
            rate="50/s",
            duration="100ms",
            body="{}",
            sign_aws="eu-west-1/lambda",
            out=out,
        )
        requests = list(server.requests)
    assert len(requests) == 5
    for request in requests:
        assert request.headers["authorization"].startswith(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/"
        )
        assert "/eu-west-1/lambda/aws4_request" in request.headers["authorization"]
        assert request.headers["x-amz-security-token"] == "token-to-be-sent"
    written = out.read_bytes()
    assert b"never-to-be-seen" not in written
    assert b"token-to-be-sent" not in written


def test_a_unix_socket_is_driven(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with Server(listen=path) as server:
        rows = package.load(
            "http://localhost/x", rate="50/s", duration="200ms", unix_socket=str(path)
        )
        assert {request.line for request in server.requests} == {"GET /x HTTP/1.1"}
    assert rows.column("outcome").to_pylist() == ["ok"] * 10
