"""Cloudflare's workerd (npm): JavaScript in an isolate of the process that serves HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from . import framework, free_port, server

NAME: Final = "workerd"
_SOURCE: Final = """
export default {
  async fetch(request) {
    await request.json();
    return Response.json({ message: "hello" });
  },
};
"""
_CONFIG: Final = """
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "hello", worker = .hello)],
  sockets = [(name = "http", address = "127.0.0.1:{port}", http = (), service = "hello")],
);
const hello :Workerd.Worker = (
  modules = [(name = "hello.js", esModule = embed "hello.js")],
  compatibilityDate = "2024-01-01",
);
"""


def install(folder: Path) -> None:
    framework(folder, "workerd")


@contextlib.contextmanager
def serve(installed: Path, work: Path) -> Iterator[tuple[str, str]]:
    port = free_port()
    (work / "hello.js").write_text(_SOURCE)
    (work / "config.capnp").write_text(_CONFIG.replace("{port}", str(port)))
    with server([str(_binary(installed)), "serve", "config.capnp"], port, work):
        yield f"127.0.0.1:{port}", "/"


def _binary(folder: Path) -> Path:
    (binary,) = folder.glob("packages/node_modules/@cloudflare/workerd-linux-*/bin/workerd")
    return binary
