"""Spans of invocations at an OpenTelemetry collector."""

import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from collector import Collector, collecting
from serving import SOURCES, Serving

from uncia.platforms import inquiries

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as result:
        yield result


@pytest.fixture(scope="module")
def traced(start_serving: Callable[..., Serving], collector: Collector) -> Serving:
    served = start_serving(
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint,
        OTEL_EXPORTER_OTLP_HEADERS="x-token=a%20b",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment=lab",
    )
    for name, source in SOURCES.items():
        served.create(name, source)
    return served


def invoke(address: str, name: str, **headers: str) -> str:
    """Invoke a function; return the id of the request."""
    url = f"http://{address}/2015-03-31/functions/{name}/invocations"
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, b"{}", method="POST", headers=names)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.headers["x-amzn-requestid"])


def of_request(collector: Collector, request_id: str) -> list[dict[str, Any]]:
    """The span of a request, and its children in their order."""

    def roots(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [it for it in spans if it["attributes"].get("faas.invocation_id") == request_id]

    spans = collector.wait(lambda spans: bool(roots(spans)))
    (root,) = roots(spans)
    children = [it for it in spans if it.get("parentSpanId") == root["spanId"]]
    return [root, *sorted(children, key=lambda it: it["start"])]


def test_an_invocation_is_a_span_with_its_phases(traced: Serving, collector: Collector) -> None:
    request_id = invoke(
        traced.address, "works", traceparent=f"00-{TRACE}-{PARENT}-01", tracestate="a=1"
    )
    root, *phases = of_request(collector, request_id)
    assert (root["name"], root["kind"], root["status"]) == ("works", 2, {})
    assert (root["traceId"], root["parentSpanId"]) == (TRACE, PARENT)
    assert root["traceState"] == "a=1"
    assert root["resource"] == {
        "service.name": "uncia",
        "deployment.environment": "lab",
        "faas.name": "works",
        "faas.max_memory": 256 * 2**20,
    }
    assert [phase["name"] for phase in phases] == ["queue", "initialization", "execution"]
    assert {phase["traceId"] for phase in phases} == {TRACE}
    table, _, _ = inquiries.fetch_page(traced.address, "invocations", 0, print)
    (row,) = [row for row in table.to_pylist() if row["request_id"] == request_id]
    lengths = [phase["end"] - phase["start"] for phase in phases]
    assert lengths == [row["queued"], row["initialization"], row["execution"]]
    assert root["end"] == row["ended"] == phases[-1]["end"]
    assert root["start"] == phases[0]["start"] == row["started"] - sum(lengths[:2])
    attributes = root["attributes"]
    assert attributes["faas.coldstart"] is True
    assert attributes["faas.trigger"] == "other"
    assert attributes["faas.instance"] == row["instance"]
    assert attributes["uncia.cpu_user_ns"] == row["cpu_user"]
    assert any(name.startswith("uncia.start.") for name in phases[1]["attributes"])
    assert collector.headers[-1]["x-token"] == "a b"


def test_what_fails_has_the_status_of_an_error(traced: Serving, collector: Collector) -> None:
    root, *_ = of_request(collector, invoke(traced.address, "fails"))
    assert root["status"]["code"] == 2
    assert root["status"]["message"].startswith("ValueError: ")
    assert root["attributes"]["error.type"] == "function_error"
    assert "parentSpanId" not in root


def test_a_url_is_called_by_http_and_an_event_keeps_its_trace(
    traced: Serving, collector: Collector
) -> None:
    traced.client.create_function_url_config(FunctionName="works", AuthType="NONE")
    url = traced.client.get_function_url_config(FunctionName="works")["FunctionUrl"]
    with urllib.request.urlopen(url, timeout=60) as answer:
        request_id = answer.headers["x-amzn-requestid"]
    root, *_ = of_request(collector, request_id)
    assert root["attributes"]["faas.trigger"] == "http"
    event = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x_amz_invocation_type": "Event"}
    root, *_ = of_request(collector, invoke(traced.address, "works", **event))
    assert (root["traceId"], root["parentSpanId"]) == (TRACE, PARENT)


def test_what_its_caller_does_not_record_is_not_sent(traced: Serving, collector: Collector) -> None:
    unsampled = "ab" * 16
    invoke(traced.address, "works", traceparent=f"00-{unsampled}-{PARENT}-00")
    of_request(collector, invoke(traced.address, "works"))
    assert all(span["traceId"] != unsampled for span in collector.spans)


def test_what_a_collector_cannot_take_now_is_sent_again(
    traced: Serving, collector: Collector
) -> None:
    collector.refusals = [503, 429]
    of_request(collector, invoke(traced.address, "works"))
    assert collector.refusals == []
    before = counts(traced)
    collector.refusals = [400]
    lost = invoke(traced.address, "works")
    wait_for(lambda: counts(traced)["dropped"] == before["dropped"] + 1)
    of_request(collector, invoke(traced.address, "works"))
    assert all(it["attributes"].get("faas.invocation_id") != lost for it in collector.spans)


def test_what_waits_at_the_end_is_sent(
    start_serving: Callable[..., Serving], collector: Collector
) -> None:
    served = start_serving(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.endpoint}/v1/traces")
    served.create("last", SOURCES["works"])
    request_id = invoke(served.address, "last")
    served.stop()
    (root,) = [
        it for it in collector.spans if it["attributes"].get("faas.invocation_id") == request_id
    ]
    assert root["name"] == "last"


def test_nobody_waits_for_a_collector_that_is_not_there(
    start_serving: Callable[..., Serving],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        served = start_serving(
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}",
            OTEL_EXPORTER_OTLP_TIMEOUT="100",
        )
        served.create("works", SOURCES["works"])
        served.invoke("works", 3)
        assert counts(served)["exported"] == 0
        wait_for(lambda: counts(served)["dropped"] > 0)
    served.process.send_signal(2)
    _, errors = served.process.communicate(timeout=120)
    assert served.process.returncode == 0
    assert "spans are lost: the collector at http://127.0.0.1:" in errors


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://example.org", "TLS is not spoken"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317", "http://127.0.0.1:4318"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_refused(
    uncia: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(name, value)
    process = uncia("serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "s")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert name in errors
    assert reason in errors
    assert not (tmp_path / "s").exists()


def counts(served: Serving) -> dict[str, int]:
    lines = served.get("/metrics").read().decode().splitlines()
    prefix = 'uncia_traced_invocations_total{result="'
    result = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
    return {line.partition('"')[0]: int(line.split()[-1]) for line in result}


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
