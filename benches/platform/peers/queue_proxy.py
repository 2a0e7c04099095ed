"""Knative's queue-proxy (Go module knative.dev/serving) before functions-framework, as in a pod.

It is what each request to a pod passes first: it counts requests, holds back those beyond the
concurrency, and probes the server. Ingress and activator, which stand before it, are left out.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from . import framework, free_port, functions_framework, server

NAME: Final = "queue-proxy"
_CONCURRENCY: Final = 80


def install(folder: Path) -> None:
    functions_framework.install(folder / "server")
    framework(folder, "queue-proxy")


@contextlib.contextmanager
def serve(installed: Path, work: Path) -> Iterator[tuple[str, str]]:
    with functions_framework.serve(installed / "server", work) as (address, path):
        user_port, port, pod = address.rpartition(":")[2], free_port(), work / "pod"
        pod.mkdir(exist_ok=True)
        probe = {"tcpSocket": {"host": "127.0.0.1", "port": int(user_port)}, "successThreshold": 1}
        environment = {
            "CONTAINER_CONCURRENCY": str(_CONCURRENCY),
            "QUEUE_SERVING_PORT": str(port),
            "QUEUE_SERVING_TLS_PORT": str(free_port()),
            "REVISION_TIMEOUT_SECONDS": "300",
            "SERVING_CONFIGURATION": "hello",
            "SERVING_LOGGING_CONFIG": "",
            "SERVING_LOGGING_LEVEL": "",
            "SERVING_NAMESPACE": "default",
            "SERVING_POD": "hello-00001",
            "SERVING_POD_IP": "127.0.0.1",
            "SERVING_READINESS_PROBE": json.dumps(probe),
            "SERVING_REVISION": "hello-00001",
            "SERVING_SERVICE": "hello",
            "USER_PORT": user_port,
        }
        with server([str(installed / "program")], port, pod, environment):
            yield f"127.0.0.1:{port}", path
