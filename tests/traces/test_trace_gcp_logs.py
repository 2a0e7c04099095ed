"""Google's logs: requests to the nanosecond, and what Google bills for them."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncia import record, traces
from uncia.errors import UnciaError
from uncia.tariffs import bill
from uncia.traces import aws_logs, gcp_logs
from uncia.traces.base import Imported

MS = 1_000_000
SECOND = 1_000_000_000
START = 1_746_871_200 * SECOND  # 2025-05-10T10:00:00Z
TRACE = "6f4f1d2c3b4a59687766554433221100"


def request(number: int, latency: str, status: int = 200, **other: Any) -> dict[str, Any]:
    """An entry of Cloud Run's request log, ``number`` seconds and 123,456,789 ns after START."""
    entry: dict[str, Any] = {
        "httpRequest": {
            "latency": latency,
            "protocol": "HTTP/1.1",
            "requestMethod": "GET",
            "requestSize": "812",
            "requestUrl": "https://svc-abc-ue.a.run.app/",
            "responseSize": "345",
            "status": status,
        },
        "insertId": f"insert{number}",
        "labels": {"instanceId": "0087244a80bf22"},
        "logName": "projects/p/logs/run.googleapis.com%2Frequests",
        "receiveTimestamp": "2025-05-10T11:00:00.5Z",
        "resource": {
            "labels": {
                "configuration_name": "svc",
                "location": "us-east1",
                "project_id": "p",
                "revision_name": "svc-00002-xyz",
                "service_name": "svc",
            },
            "type": "cloud_run_revision",
        },
        "severity": "INFO",
        "timestamp": f"2025-05-10T10:{number // 60:02d}:{number % 60:02d}.123456789Z",
        "trace": f"projects/p/traces/{TRACE}",
    }
    return entry | other


def error_message(second: int, text: str, execution: str = "grcug3cacqj4") -> dict[str, Any]:
    """An entry of Cloud Functions of the first generation."""
    return {
        "insertId": f"000000-{second}-{execution}",
        "labels": {"execution_id": execution},
        "logName": "projects/p/logs/cloudfunctions.googleapis.com%2Fcloud-functions",
        "resource": {
            "labels": {"function_name": "fn", "project_id": "p", "region": "europe-west1"},
            "type": "cloud_function",
        },
        "severity": "DEBUG",
        "textPayload": text,
        "timestamp": f"2025-05-10T10:00:{second:02d}.5Z",
        "trace": f"projects/p/traces/{TRACE}",
    }


def service(**limits: str) -> dict[str, Any]:
    container = {"image": "i", "resources": {"limits": limits}}
    template = {"spec": {"containerConcurrency": 80, "containers": [container]}}
    return {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": {"name": "svc"},
        "spec": {"template": template},
    }


def save(path: Path, *values: Any, lines: bool = False) -> Path:
    text = "\n".join(map(json.dumps, values)) if lines else json.dumps(list(values), indent=2)
    data = text.encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def imported(folder: Path) -> list[dict[str, object]]:
    rows = record.read(folder).to_pylist()
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def test_a_record_of_something_else_is_rejected(tmp_path: Path) -> None:
    report = {"RequestId": "a", "Duration": 1.5, "Billed Duration": 2, "Memory Size": 128}
    other_log = {"logName": "projects/p/logs/stdout", "textPayload": "hello"}
    log = save(tmp_path / "a.json", request(1, "1s"), report, [report], report, other_log)
    done = gcp_logs.convert([log], tmp_path / "out")
    assert done.rows == {"invocations": 1}
    reason = "not an entry of Cloud Logging's or the description of a service"
    assert done.rejected == {reason: 3}
    with pytest.raises(UnciaError, match="is not an entry of Cloud Logging's"):
        gcp_logs.convert([log], tmp_path / "none", strict=True)


def test_descriptions_beside_a_log_are_recognised(tmp_path: Path) -> None:
    log = save(tmp_path / "in" / "log.json", request(1, "1s"))
    described = save(tmp_path / "in" / "svc.json", service(cpu="1", memory="512Mi"))
    assert traces.recognise([log, described]) is gcp_logs
    save(tmp_path / "in" / "planted.json", {"seed": 1})  # of a synthetic trace
    assert traces.load([tmp_path / "in"], tmp_path / "out", strict=True).skipped == 0
    (row,) = imported(tmp_path / "out")
    assert row["allocated_memory"] == 512 << 20


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("trace", ["", "/123;o=1", ";o=1"])
def test_a_request_becomes_a_row(lines: bool, trace: str, tmp_path: Path) -> None:
    entry = request(2, "0.123456001s", trace=f"projects/p/traces/{TRACE}{trace}")
    log = save(tmp_path / "a.json.gz", {"jsonPayload": {"message": "x"}}, entry, entry, lines=lines)
    assert gcp_logs.detect([log])
    assert not aws_logs.detect([log])
    done = gcp_logs.convert([log], tmp_path / "out")
    assert imported(tmp_path / "out") == [
        {
            "platform": "gcp-us-east1",
            "function": "svc",
            "invocation": "insert2",
            "request_id": TRACE,
            "attempt": 1,
            "outcome": "ok",
            "status": 200,
            "instance": "0087244a80bf22",
            "started": START + 2_123_456_789,
            "ended": START + 2_123_456_789 + 123_456_001,
            "execution": 123_456_001,
        }
    ]
    assert "1 entry that occurred again, taken once" in done.warnings
    assert any("allocation is null" in warning for warning in done.warnings)


def test_statuses_are_outcomes(tmp_path: Path) -> None:
    statuses = [200, 302, 404, 429, 500, 503, 504]
    entries = [request(n, "1.5s", status) for n, status in enumerate(statuses)]
    refused = request(9, "0s", 403, labels={})
    gcp_logs.convert([save(tmp_path / "a.json", *entries, refused)], tmp_path / "out")
    result = imported(tmp_path / "out")
    assert [(row["status"], row["outcome"], row.get("error")) for row in result] == [
        (200, "ok", None),
        (302, "ok", None),
        (404, "transport_error", "HTTP 404"),
        (429, "transport_error", "HTTP 429"),  # the function's own
        (500, "function_error", "HTTP 500"),
        (503, "function_error", "HTTP 503"),
        (504, "timeout", "HTTP 504"),
        (403, "transport_error", "HTTP 403"),
    ]
    assert [row.get("execution") for row in result] == [1_500 * MS] * 7 + [None]


def test_functions_of_the_first_generation(tmp_path: Path) -> None:
    entries = [
        error_message(9, "Function execution took 426 ms, finished with status code: 200"),
        error_message(3, "Function execution started"),
        error_message(5, "a line of the function's own"),
        error_message(
            7, "Function execution took 60002.5 ms, finished with status: 'timeout'", "second"
        ),
        error_message(8, "Function execution took 7 ms, finished with status: 'crash'", "third"),
        error_message(8, "Function execution took 8 ms. Finished with status: ok", "fourth"),
        error_message(9, "Function execution started", "open"),
    ]
    done = gcp_logs.convert([save(tmp_path / "a.json", *entries)], tmp_path / "out")
    result = {row["invocation"]: row for row in imported(tmp_path / "out")}
    assert result["grcug3cacqj4"] == {
        "platform": "gcp-europe-west1",
        "function": "fn",
        "invocation": "grcug3cacqj4",
        "request_id": "grcug3cacqj4",
        "attempt": 1,
        "outcome": "ok",
        "status": 200,
        "started": START + 3_500 * MS,
        "ended": START + 9_500 * MS,
        "execution": 426 * MS,
    }
    others = [(result[name]["outcome"], result[name]["execution"]) for name in ("second", "third")]
    assert others == [("timeout", 60_002_500_000), ("function_error", 7 * MS)]
    assert (result["fourth"]["outcome"], result["third"]["error"]) == ("ok", "crash")
    assert "open" not in result
    assert "3 executions logged at its end only: started is null" in done.warnings
    assert "1 execution started without an end in the log: no row" in done.warnings


def test_descriptions_beside_the_log_give_the_allocation(tmp_path: Path) -> None:
    revision = {
        "kind": "Revision",
        "metadata": {"name": "svc-00001-old"},
        "spec": {
            "containerConcurrency": 1,
            "containers": [{"resources": {"limits": {"cpu": "0.5", "memory": "1G"}}}],
        },
    }
    old = request(1, "1s")
    old["resource"]["labels"]["revision_name"] = "svc-00001-old"
    save(tmp_path / "log" / "a.json", old, request(2, "1s"))
    (tmp_path / "log" / "service.json").write_text(json.dumps(service(cpu="1000m", memory="512Mi")))
    save(tmp_path / "log" / "z" / "revisions.json", revision)
    gcp_logs.convert([tmp_path / "log"], tmp_path / "out")
    result = [
        (row["allocated_cpu"], row["allocated_memory"], row.get("shared"))
        for row in imported(tmp_path / "out")
    ]
    assert result == [(500_000, 10**9, False), (1_000_000, 512 << 20, None)]


def described(location: str | None, **limits: str) -> dict[str, Any]:
    description = service(**limits)
    if location is not None:
        description["metadata"]["labels"] = {"cloud.googleapis.com/location": location}
    return description


def placed(number: int, location: str | None) -> dict[str, Any]:
    entry = request(number, "1s")
    del entry["resource"]["labels"]["location"]
    if location is not None:
        entry["resource"]["labels"]["location"] = location
    return entry


def cpus(folder: Path) -> list[object]:
    return [row.get("allocated_cpu") for row in imported(folder)]


def allocation_warnings(done: Imported) -> list[str]:
    return [text for text in done.warnings if " of services " in text]


def differing(noun: str, column: str) -> str:
    return (
        f"of services whose descriptions differ in {noun}: {column} is null; give one description"
        " for each service and location"
    )


def test_a_description_is_of_its_location(tmp_path: Path) -> None:
    sizes = [described("eu", cpu="1", memory="1Gi"), described("us", cpu="4", memory="4Gi")]
    log = [placed(1, "eu"), placed(2, "us"), placed(3, "asia"), placed(4, None)]
    for order, size in (("a", sizes), ("b", sizes[::-1])):
        save(tmp_path / order / "log.json", *log)
        save(tmp_path / order / "sizes.json", *size)
        done = gcp_logs.convert([tmp_path / order], tmp_path / f"out-{order}")
        assert cpus(tmp_path / f"out-{order}") == [1_000_000, 4_000_000, None, None]
        assert any(text.startswith("1 request of services that nothing") for text in done.warnings)
        assert any(
            text.startswith("1 request of services whose descriptions differ")
            for text in done.warnings
        )


def test_a_description_without_location_counts_where_no_other_does(tmp_path: Path) -> None:
    sizes = [described("eu", cpu="1", memory="1Gi"), described(None, cpu="2", memory="1Gi")]
    save(tmp_path / "in" / "sizes.json", *sizes, *sizes)
    save(tmp_path / "in" / "log.json", placed(1, "eu"), placed(2, "us"))
    gcp_logs.convert([tmp_path / "in"], tmp_path / "out")
    assert cpus(tmp_path / "out") == [1_000_000, 2_000_000]


def test_descriptions_that_differ_give_no_allocation(tmp_path: Path) -> None:
    sizes = [described("eu", cpu=cpu, memory="1Gi") for cpu in ("1", "2")]
    save(tmp_path / "in" / "sizes.json", *sizes)
    save(tmp_path / "in" / "log.json", placed(1, "eu"))
    done = gcp_logs.convert([tmp_path / "in"], tmp_path / "out")
    (row,) = imported(tmp_path / "out")
    assert (row.get("allocated_cpu"), row.get("allocated_memory")) == (None, 1 << 30)
    assert allocation_warnings(done) == [f"1 request {differing('CPU', 'allocated_cpu')}"]


def test_descriptions_that_differ_in_concurrency_give_the_allocation(tmp_path: Path) -> None:
    one, many = (described("eu", cpu="1", memory="1Gi") for _ in range(2))
    one["spec"]["template"]["spec"]["containerConcurrency"] = 1
    save(tmp_path / "in" / "sizes.json", one, many)
    save(tmp_path / "in" / "log.json", placed(1, "eu"))
    done = gcp_logs.convert([tmp_path / "in"], tmp_path / "out")
    (row,) = imported(tmp_path / "out")
    assert (row["allocated_cpu"], row["allocated_memory"]) == (1_000_000, 1 << 30)
    assert "shared" not in row
    assert allocation_warnings(done) == [f"1 request {differing('containerConcurrency', 'shared')}"]


@pytest.mark.parametrize(
    ("limits", "allocation", "lacking"),
    [
        ({"cpu": "1", "memory": "512Mi"}, (1_500_000, 1 << 30), []),
        ({"memory": "512Mi"}, (None, 1 << 30), ["CPU: allocated_cpu"]),
        ({"cpu": "1"}, (1_500_000, None), ["memory: allocated_memory"]),
        ({}, (None, None), ["CPU: allocated_cpu", "memory: allocated_memory"]),
        (
            {"cpu": "1000000000", "memory": "1048575.9Gi"},
            (1_000_000_000_500_000, None),
            ["memory: allocated_memory"],
        ),
    ],
)
def test_containers_of_an_instance_add_up(
    limits: dict[str, str],
    allocation: tuple[int | None, int | None],
    lacking: list[str],
    tmp_path: Path,
) -> None:
    size = service(cpu="500m", memory="512Mi")
    size["spec"]["template"]["spec"]["containers"].append({"resources": {"limits": limits}})
    save(tmp_path / "in" / "log.json", request(1, "1s"))
    save(tmp_path / "in" / "service.json", size)
    done = gcp_logs.convert([tmp_path / "in"], tmp_path / "out")
    (row,) = imported(tmp_path / "out")
    assert (row.get("allocated_cpu"), row.get("allocated_memory")) == allocation
    expected = [it.replace(":", ", or an absurd one:") for it in lacking]
    assert allocation_warnings(done) == [
        f"1 request of services with a container that has no limit of {it} is null;"
        " give a description with the limits of all containers"
        for it in expected
    ]


def test_what_never_had_an_instance_is_not_billed(tmp_path: Path) -> None:
    statuses = (403, 429, 500, 503, 504)
    refused = [request(n, "10s", status, labels={}) for n, status in enumerate(statuses)]
    ran = [request(n, "2s", status) for n, status in enumerate(statuses, len(statuses))]
    save(tmp_path / "in" / "log.json", *refused, *ran)
    save(tmp_path / "in" / "service.json", service(cpu="1", memory="512Mi"))
    gcp_logs.convert([tmp_path / "in"], tmp_path / "out")
    rows = imported(tmp_path / "out")
    assert [(row["outcome"], row.get("execution")) for row in rows] == [
        ("transport_error", None),
        ("throttled", None),
        ("throttled", None),
        ("throttled", None),
        ("timeout", None),
        ("transport_error", 2 * SECOND),
        ("transport_error", 2 * SECOND),
        ("function_error", 2 * SECOND),
        ("function_error", 2 * SECOND),
        ("timeout", 2 * SECOND),
    ]
    (line,) = bill(record.read(tmp_path / "out"), ["gcp-run-request"])
    assert (line.rows, line.unpriced) == (5, {})
    assert line.not_billable == {
        "throttled": 3,
        "timeout before it ran": 1,
        "transport error before it ran": 1,
    }
    assert line.billable_micro_vcpu_ns == 5 * 2 * SECOND * 1_000_000


def test_without_labels_nothing_tells_what_had_no_instance(tmp_path: Path) -> None:
    statuses = (200, 403, 429, 500, 503, 504)
    entries = [request(n, "30s", status, labels={}) for n, status in enumerate(statuses)]
    other = request(9, "1s", labels={"instanceId": "00a"})  # another service's says nothing
    other["resource"]["labels"]["service_name"] = "other"
    elsewhere = request(10, "1s", labels={"instanceId": "00b"})
    elsewhere["resource"]["labels"]["location"] = "eu"
    save(tmp_path / "in" / "log.json", *entries, other, elsewhere)
    save(tmp_path / "in" / "service.json", service(cpu="1", memory="512Mi"))
    done = gcp_logs.convert([tmp_path / "in"], tmp_path / "out")
    rows = imported(tmp_path / "out")[: len(entries)]
    assert [row["outcome"] for row in rows] == [
        "ok",
        "transport_error",
        "transport_error",
        "function_error",
        "function_error",
        "timeout",
    ]
    assert [row["execution"] for row in rows] == [30 * SECOND] * len(rows)
    assert [row["ended"] - row["started"] for row in rows] == [30 * SECOND] * len(rows)  # type: ignore[operator]
    assert any(
        text.startswith("5 requests failed where no entry of the service") for text in done.warnings
    )
    assert not any("refused before it reached an instance:" in text for text in done.warnings)
    (line, *_) = bill(record.read(tmp_path / "out"), ["gcp-run-request"], ["function"])[::-1]
    assert (line.rows, line.not_billable) == (len(entries) + 1, {})


def test_without_a_location_labels_count_too(tmp_path: Path) -> None:
    refused, ran = placed(1, None), placed(2, None)
    refused["labels"] = {}
    refused["httpRequest"]["status"] = 503
    done = gcp_logs.convert([save(tmp_path / "a.json", refused, ran)], tmp_path / "out")
    assert [row["outcome"] for row in imported(tmp_path / "out")] == ["throttled", "ok"]
    assert "1 request refused before it reached an instance: execution is null" in done.warnings


def test_google_bills_steps_of_100_ms(tmp_path: Path) -> None:
    # Latency, and the milliseconds that it is billed for.
    cases = [
        ("0.099999999s", 100),
        ("0.100s", 100),
        ("0.100000001s", 200),
        ("0.101s", 200),
        ("2.300000s", 2300),
        ("2.3001s", 2400),
        ("60s", 60_000),
    ]
    entries = [request(n, latency) for n, (latency, _) in enumerate(cases)]
    log = save(tmp_path / "a.json", *entries)
    size = tmp_path / "service.json"
    size.write_text(json.dumps(service(cpu="1", memory="512Mi")))
    gcp_logs.convert([log, size], tmp_path / "out")
    table = record.read(tmp_path / "out")
    lines = bill(table, ["gcp-run-request"], group_by=["invocation"])
    billed = {
        line.group["invocation"]: Fraction(line.billable_byte_ns or 0, (512 << 20) * MS)
        for line in lines
    }
    assert billed == {f"insert{n}": milliseconds for n, (_, milliseconds) in enumerate(cases)}
    assert all(
        line.billable_micro_vcpu_ns == billed[line.group["invocation"]] * MS * 1_000_000
        for line in lines
    )


def test_bad_entries_are_left_out_and_counted(tmp_path: Path) -> None:
    bad: list[tuple[Any, str]] = [
        (request(1, "12"), r"httpRequest\.latency: '12' is not seconds such as 0\.123456s"),
        (request(1, "-1s"), r"httpRequest\.latency: '-1s' is not seconds"),
        (request(1, "NaNs"), r"httpRequest\.latency"),
        (request(1, "1s", 99), r"httpRequest\.status: '99' is not an HTTP status"),
        (request(1, "1s", timestamp="2025-13-10T10:00:00Z"), "timestamp: .* is not a time"),
        (request(1, "1s", timestamp="0001-01-01T00:00:00+23:00"), "timestamp: .* is not a time"),
        (request(1, "1s", timestamp="2025-05-10T10:00:00+99:00"), "timestamp: .* is not a time"),
        (request(1, "1s", httpRequest=None), "httpRequest: '' is not an object"),
        (request(1, "1s", resource={}), r"resource\.labels\.service_name: '' is not a name"),
        (error_message(1, "Function execution took long"), "textPayload"),
        (
            error_message(1, "Function execution took -5 ms, finished with status: 'ok'"),
            "textPayload",
        ),
        ([1], "an entry of Cloud Logging's"),
    ]
    good = [request(n, f"{n}.5s") for n in range(3)]
    log = save(tmp_path / "a.json", *good[:2], *(item for item, _ in bad), good[2])
    done = gcp_logs.convert([log], tmp_path / "out", strict=False)
    assert done.skipped == len(bad)
    assert [row["execution"] for row in imported(tmp_path / "out")] == [
        500 * MS,
        1500 * MS,
        2500 * MS,
    ]
    for number, (item, entry) in enumerate(bad):
        file = save(tmp_path / f"{number}.jsonl", good[0], item, lines=True)
        if isinstance(item, list):
            file = save(tmp_path / f"{number}.json", good[0], item)
        with pytest.raises(UnciaError, match=entry):
            gcp_logs.convert([file], tmp_path / "none", strict=True)
    assert not (tmp_path / "none").exists()


def test_a_number_beyond_all_bounds_is_one_bad_row(tmp_path: Path) -> None:
    huge = json.dumps([request(1, "1s"), request(2, "-1")]).replace(
        '"-1"', "1e99999999999999999999"
    )
    sized = json.dumps(service(cpu="-1", memory="512Mi")).replace('"-1"', "1e99999999999999999999")
    log = tmp_path / "a.json"
    log.write_text(huge)
    size = tmp_path / "service.json"
    size.write_text(sized)
    done = gcp_logs.convert([log, size], tmp_path / "out", strict=False)
    assert done.skipped == 1
    (row,) = imported(tmp_path / "out")
    assert (row["execution"], row["allocated_memory"]) == (SECOND, 512 << 20)
    assert "allocated_cpu" not in row


def test_half_of_a_surrogate_pair_is_replaced(tmp_path: Path) -> None:
    text = "Function execution took 5 ms, finished with status: 'x\ud800'"
    log = save(tmp_path / "a.json", request(1, "1s"), error_message(2, text))
    done = gcp_logs.convert([log], tmp_path / "out")
    assert done.skipped == 0
    assert [row.get("error") for row in imported(tmp_path / "out")] == [None, "x\ufffd"]


def test_what_is_no_log_is_an_error(tmp_path: Path) -> None:
    entries = [request(n, "1s") for n in range(3)]
    whole = json.dumps(entries)
    cut = tmp_path / "cut.json"
    cut.write_text(whole[:-200])
    with pytest.raises(UnciaError, match=r"cut\.json is cut off: its JSON ends within record 3"):
        gcp_logs.convert([cut], tmp_path / "out", strict=False)
    packed = tmp_path / "cut.json.gz"
    packed.write_bytes(gzip.compress(whole.encode())[:-20])
    with pytest.raises(UnciaError, match=r"cut\.json\.gz is cut off"):
        gcp_logs.convert([packed], tmp_path / "out", strict=False)
    with pytest.raises(UnciaError, match="no entry of a request"):
        gcp_logs.convert([save(tmp_path / "a.json", {"a": 1})], tmp_path / "out")
    plain = tmp_path / "yaml.txt"
    plain.write_text("---\nhttpRequest:\n  latency: 1s\n")
    assert not gcp_logs.detect([plain])
    with pytest.raises(UnciaError, match="is no JSON"):
        gcp_logs.convert([plain], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_any_damage_is_an_error_or_counted(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    entries = [
        request(1, "0.5s"),
        error_message(2, "Function execution took 5 ms, finished with status: 1"),
    ]
    log = save(folder / "a.json", *entries, lines=data.draw(st.booleans()))
    content = bytearray(log.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    log.write_bytes(content)
    try:
        done = gcp_logs.convert([log], folder / "out", strict=False)
    except UnciaError:
        assert not (folder / "out").exists()
    else:
        assert done.rows["invocations"] >= 1
