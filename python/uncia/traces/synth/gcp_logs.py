"""Synthetic logs of Google Cloud Run, as ``gcloud logging read --format=json`` prints them.

``requests-0.json`` and so on hold the request log of a service each, and ``services.json`` the
services' descriptions, which say the allocation. Latencies follow what the cost paper measured of
a CPU-bound function (PyAES): 18.927 ms at 1 vCPU, and longer by the share that a smaller one has of
it. Chosen: sizes, the spread, the rate, the life of instances, and a cold start of 1 to 3 s.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from uncia.traces.synth import records
from uncia.traces.synth.base import FileMade, Made, Order, generator, opened, spread

KIND: Final = "gcp-logs"
DESCRIPTION: Final = "The request log of Cloud Run services, with the services' descriptions."

_SIZES: Final = (("80m", "128Mi"), ("333m", "512Mi"), ("500m", "512Mi"), ("1", "512Mi"))
_VCPU: Final = (0.08, 0.333, 0.5, 1.0)
_FULL_NS: Final = 18_927_000
_BEGIN: Final = datetime(2025, 5, 12, tzinfo=UTC)
_GAP_US: Final = 1_000_000
_LIFE: Final = 500  # requests of an instance
_ROWS_A_FILE: Final = 100_000
_PROJECT: Final = "projects/example-project"
_STATUSES: Final = (200, 500, 429, 504)
_SHARES: Final = (0.995, 0.002, 0.002, 0.001)

_SPOILERS: Final = {
    "nan": records.replaced('"latency": "', '"latency": "NaN'),
    "negative": records.replaced('"latency": "', '"latency": "-'),
    "absurd": records.replaced('"latency": "', '"latency": "99999999999999999999'),
    "empty": records.replaced('"status": ', '"state": '),
    "text": records.replaced('"timestamp": "', '"timestamp": "noon '),
    "not_an_entry": lambda _: "[1, 2]",
}


def make(order: Order) -> Made:
    """Write the request logs, and the descriptions."""
    parts = spread(order.rows, order.files or -(-order.rows // _ROWS_A_FILE))
    made = [
        records.write(
            order,
            number,
            f"requests-{number}.json",
            "[",
            _requests(order.seed, number, rows),
            "]",
            _SPOILERS,
        )
        for number, (_, rows) in enumerate(parts)
    ]
    return Made([*made, _services(order, len(parts))])


def _requests(seed: int, number: int, rows: int) -> Iterator[list[str]]:
    usual = _FULL_NS / _VCPU[number % len(_VCPU)]
    now = _BEGIN
    for life in range(-(-rows // _LIFE)):
        rng = generator(seed, number, life)
        instance = rng.bytes(96).hex()
        digits = rng.bytes(16 * _LIFE).hex()
        z = np.clip(rng.standard_normal(_LIFE), -4, 4)
        latencies = np.rint(usual * np.exp(0.15 * z)).astype(np.int64)
        latencies[0] += int(rng.integers(1_000_000_000, 3_000_000_000))
        gaps = rng.integers(0, 2 * _GAP_US, _LIFE).tolist()
        status = rng.choice(_STATUSES, _LIFE, p=_SHARES).tolist()
        for i, latency in enumerate(latencies[: rows - life * _LIFE].tolist()):
            now += timedelta(microseconds=gaps[i])
            index = number * rows + life * _LIFE + i
            entry = _entry(
                f"service-{number}", now, latency, status[i], digits[32 * i :][:32], index
            )
            if status[i] != 429:  # which no instance saw
                entry["labels"] = {"instanceId": instance}
            yield [json.dumps(entry)]
            now += timedelta(microseconds=latency // 1000)


def _entry(
    service: str, at: datetime, latency: int, status: int, trace: str, index: int
) -> dict[str, Any]:
    seen = at + timedelta(microseconds=latency // 1000)
    return {
        "insertId": f"{service}-{index:012d}",
        "httpRequest": {
            "requestMethod": "POST",
            "requestUrl": f"https://{service}.example.com/",
            "requestSize": "312",
            "status": status,
            "responseSize": "512",
            "latency": f"{latency // 10**9}.{latency % 10**9:09d}s",
            "protocol": "HTTP/1.1",
        },
        "resource": {
            "type": "cloud_run_revision",
            "labels": {
                "project_id": "example-project",
                "service_name": service,
                "revision_name": f"{service}-00001-abc",
                "configuration_name": service,
                "location": "us-central1",
            },
        },
        "timestamp": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond:06d}Z",
        "severity": "INFO" if status < 400 else "ERROR",
        "logName": f"{_PROJECT}/logs/run.googleapis.com%2Frequests",
        "trace": f"{_PROJECT}/traces/{trace}",
        "receiveTimestamp": f"{seen:%Y-%m-%dT%H:%M:%S}.{seen.microsecond:06d}Z",
    }


def _services(order: Order, count: int) -> FileMade:
    made = FileMade("", count)
    described = [
        {
            "apiVersion": "serving.knative.dev/v1",
            "kind": "Service",
            "metadata": {"name": f"service-{number}"},
            "spec": {
                "template": {
                    "spec": {
                        "containerConcurrency": 1,
                        "containers": [{"resources": {"limits": {"cpu": cpu, "memory": memory}}}],
                    }
                }
            },
        }
        for number in range(count)
        for cpu, memory in [_SIZES[number % len(_SIZES)]]
    ]
    with opened(order, "services.json") as (file, made.path):
        file.write(json.dumps(described, indent=1).encode() + b"\n")
    return made
