"""The servers that generators are measured against: hyper, a recorder of arrivals, nginx."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
READY_TIMEOUT_S = 10.0
END_TIMEOUT_S = 60.0

# One worker, no log, connections that last: like the hyper server, as little as possible between
# the generator and the kernel.
NGINX = """
daemon off;
worker_processes 1;
error_log {folder}/error.log;
pid {folder}/nginx.pid;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ return 200 "hello"; }}
    }}
}}
"""


@dataclass
class Server:
    """A running server; ``summary`` is there when it has ended, of those that print one."""

    url: str
    summary: dict[str, Any] = field(default_factory=dict)


class Missing(Exception):
    """Something that a measurement needs is not on this machine; the message says what."""


def build_wire() -> Path:
    """Builds benches/load/wire and returns the binary."""
    manifest = HERE / "wire" / "Cargo.toml"
    command = ["cargo", "build", "--release", "--locked", "--manifest-path", str(manifest)]
    subprocess.run(command, check=True)
    target = os.environ.get("CARGO_TARGET_DIR")
    return (HERE / "wire" / "target" if target is None else Path(target)) / "release" / "wire"


@contextlib.contextmanager
def wire(binary: Path, arguments: Sequence[str | Path]) -> Iterator[Server]:
    """Runs ``wire`` in one of its modes until the block ends."""
    command = [str(part) for part in (binary, *arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            server = Server(process.stdout.readline().strip())
            if not server.url:
                raise SystemExit(f"{' '.join(command)} did not start")
            yield server
            process.send_signal(signal.SIGTERM)
            rest = process.communicate(timeout=END_TIMEOUT_S)[0]
            if rest.strip():
                server.summary = json.loads(rest)
        finally:
            process.kill()


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[Server]:
    """Runs nginx with one worker until the block ends.

    Raises:
        Missing: it is not installed.
    """
    binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if binary is None:
        raise Missing("nginx is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(folder=folder, port=port))
    command = [binary, "-p", str(folder), "-c", str(config)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + READY_TIMEOUT_S
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"nginx did not start: see {folder}/error.log")
                time.sleep(0.05)
            yield Server(f"http://127.0.0.1:{port}/")
        finally:
            # Its worker ends with it; killed, it would leave the worker behind.
            process.terminate()
            process.wait(END_TIMEOUT_S)
