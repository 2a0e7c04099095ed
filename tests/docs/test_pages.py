"""Every command and snippet of the README and the documentation runs, or says why it cannot."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pages
import pytest
from pages import ROOT, Block

PAGES = pages.pages()
DEMO = """
name: demo
seed: 1
platform: {kind: embedded}
functions:
  hello: {source: hello, memory: 1769MB}
  pyaes: {source: pyaes, memory: 512MB, parameters: {iterations: 1}}
experiments:
  warm:
    function: hello
    arrivals: {kind: constant, rate: 100/s, duration: 1s}
    warmup: {kind: burst, sizes: [2]}
  pyaes:
    function: pyaes
    arrivals: {kind: constant, rate: 20/s, duration: 2s}
    warmup: {kind: burst, sizes: [1]}
"""
WHOLE = "DOCS_WHOLE" in os.environ
"""The long form (``make docs``), with the blocks that take minutes."""

RUNS = ("demo", "a", "b", "main", "branch", "base", "change")
"""Folders of results that pages take for granted: each is the run above."""


FILES = (
    *(Path(__file__).parent / "files").iterdir(),
    ROOT / "tests" / "data" / "infer" / "aws-128MB.json.gz",
    ROOT / "tests" / "data" / "bandwidth" / "aws-pyaes.csv",
)
"""What a reader is taken to have: copied to the folder of each page that names it."""


class Answer(http.server.BaseHTTPRequestHandler):
    """Answers every request at once."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(204)
        self.end_headers()

    do_POST = do_PUT = do_GET

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """With room for connections that a busy machine lets wait."""

    request_queue_size = 1024


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a server for what sends requests."""
    server = Server(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def environment(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What processes of the pages inherit: ``uncia`` and ``python`` of this environment first."""
    home = tmp_path_factory.mktemp("home")
    programs = home / "bin"
    programs.mkdir()
    for name, call in (
        ("uncia", f'"{sys.executable}" "{Path(__file__).parent}/shim.py" "$@"'),
        ("python", f'"{sys.executable}" "$@"'),
        ("python3", f'"{sys.executable}" "$@"'),
        ("uncia-engine", f'"{engine_binary}" "$@"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\nexec {call}\n")
        (programs / name).chmod(0o755)
    (programs / "activate").write_text(f"export PATH={programs}:$PATH\n")
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "python"),
        "UNCIA_ENGINE": str(engine_binary),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "COLUMNS": "200",
    }


@pytest.fixture(scope="module")
def demo(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "demo.yaml").write_text(DEMO)
    done = subprocess.run(
        ["uncia", "run", "demo.yaml", "--out", "demo", "--quiet"],
        executable=shutil.which("uncia", path=environment["PATH"]),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "demo"


@dataclass
class Reader:
    """Follows a page in a folder of its own.

    Attributes:
        addresses: what stands in the page, and what takes its place here.
    """

    folder: Path
    environment: dict[str, str]
    addresses: dict[str, str]
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def follow(self, block: Block) -> None:
        """Do what a block says, and what its comments ask for."""
        code = self._with_addresses(block.code)
        if "first" in block.comments:
            self._shell(self._with_addresses(block.comments["first"]), block, {})
        if "file" in block.comments:
            file = self.folder / block.comments["file"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(code, encoding="utf-8")
        if block.language == "console":
            self._console(code, block)
        elif block.language == "python" and "file" not in block.comments:
            self._python(code, block)
        elif block.language == "sql":
            with contextlib.chdir(self.folder):
                assert duckdb.sql(code).fetchall(), f"{block}: no rows"
        elif block.language == "json":
            self._json(block)
        elif block.language == "yaml":
            pages.check_yaml(block, self.folder)

    def close(self) -> None:
        """End what still runs."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.communicate(timeout=60)

    def _with_addresses(self, text: str) -> str:
        for written, address in self.addresses.items():
            text = text.replace(written, address)
        return text

    def _console(self, code: str, block: Block) -> None:
        options = {
            "SHIM_WITH": self._with_addresses(block.comments.get("with", "")),
            "SHIM_WITHOUT": block.comments.get("without", ""),
        }
        if "runs on" in block.comments:
            self._start(code, block, options)
            return
        commands = pages.commands(code)
        if all(command.output is None for command in commands):
            self._shell(code.replace("\n$ ", "\n").removeprefix("$ "), block, options)
            return
        for command in commands:
            printed = pages.folded(self._shell(command.line, block, options))
            quoted = pages.folded(command.output or "")
            assert quoted in printed, f"{block}: {command.line} printed\n{printed}"

    def _shell(self, script: str, block: Block, options: dict[str, str]) -> str:
        """What a script prints; it fails the test unless it ends well."""
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment | options,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}: {script}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{block}: {done.stderr}"
        return done.stdout

    def _start(self, script: str, block: Block, options: dict[str, str]) -> None:
        """Start a platform, and wait until it listens."""
        address = self.addresses["127.0.0.1:9001"]
        options = options | {"SHIM_WITH": f"serve --listen {address}"}
        process = subprocess.Popen(
            ["bash", "-c", f"exec {script}"],
            cwd=self.folder,
            env=self.environment | options,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.processes.append(process)
        host, port = address.split(":")
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((host, int(port))),
            ):
                return
            assert process.poll() is None, f"{block}: {process.communicate()[0]}"
            time.sleep(0.05)

    def _json(self, block: Block) -> None:
        """Have the engine read a configuration of a load; what it sends does not matter."""
        config = pages.load_config(block)
        if "streams" not in config:
            return
        file = self.folder / "config.json"
        rows = self.folder / f"{block.line}.arrows"
        file.write_text(json.dumps(config | {"out": str(rows), "dry_run": True}))
        done = subprocess.run(
            ["uncia-engine", "load", "--config", file],
            executable=shutil.which("uncia-engine", path=self.environment["PATH"]),
            capture_output=True,
            text=True,
            check=False,
        )
        closed = any("closed" in stream for stream in config["streams"])
        if closed:  # which have no times to compute; nothing else is wrong
            assert "closed" in done.stderr, f"{block}: {done.stderr}"
        else:
            assert done.returncode == 0, f"{block}: {done.stderr}"

    def _python(self, code: str, block: Block) -> None:
        """Run a cell; cells of a page share their names."""
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            exec(compile(code, str(block), "exec"), self.names)


@pytest.fixture
def reader(
    tmp_path: Path, environment: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Reader]:
    """A reader in an empty folder."""
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "UNCIA_ENGINE"):
        monkeypatch.setenv(name, environment[name])
    with socket.create_server(("127.0.0.1", 0)) as free:
        platform = f"127.0.0.1:{free.getsockname()[1]}"
    addresses = {
        "http://127.0.0.1:8080": url,
        "https://example.org": url,
        "127.0.0.1:9001": platform,
    }
    made = Reader(tmp_path, environment | {"URL": f"{url}/"}, addresses)
    (tmp_path / ".venv").mkdir()
    programs = Path(environment["PATH"].partition(os.pathsep)[0])
    (tmp_path / ".venv" / "bin").symlink_to(programs)
    for name in ("experiments", "functions", "benches"):
        (tmp_path / name).symlink_to(ROOT / name)
    yield made
    made.close()


def blocks(page: Path) -> list[Block]:
    return list(pages.blocks(page, (ROOT / page).read_text(encoding="utf-8")))


def excused(block: Block) -> bool:
    """Whether a block is not run here."""
    here = {"not run", "run by", "usage"}
    here |= set() if WHOLE else {"long"}
    here |= set() if os.getuid() == 0 else {"root"}
    return bool(here & set(block.comments))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_block_has_a_language_and_every_exception_a_reason(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for block in blocks(page):
        assert block.language in pages.LANGUAGES, f"{block}: ```{block.language}"
        for comment in (
            "not run",
            "long",
            "run by",
            "file",
            "first",
            "with",
            "without",
            "part of",
        ):
            assert block.comments.get(comment, comment), f"{block}: {comment} says nothing"
        if block.language == "text" and "usage" not in block.comments:
            assert not list(pages.uncia_commands(block.code)), f"{block}: commands are console"
        if block.language in ("go", "rust"):
            assert excused(block), f"{block}: run by whom?"
        test = block.comments.get("run by")
        if test is not None:
            assert page.name in (ROOT / test).read_text(encoding="utf-8"), f"{block}: {test}"
    quoted = [words for command in pages.inline(text) for words in pages.uncia_commands(command)]
    shown = [words for block in blocks(page) for words in pages.uncia_commands(block.code)]
    faults = [fault for words in (*quoted, *shown) if (fault := pages.fault(words))]
    assert faults == []


RUNNABLE = [
    page
    for page in PAGES
    if any(not excused(block) and block.language != "text" for block in blocks(page))
]


@pytest.mark.timeout(3600 if WHOLE else 900)
@pytest.mark.parametrize("page", RUNNABLE, ids=str)
def test_the_page_does_what_it_says(
    page: Path, reader: Reader, request: pytest.FixtureRequest
) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for file in FILES:
        if file.name in text:
            shutil.copy(file, reader.folder)
    for name in RUNS:
        if f"results/{name}" in text:
            shutil.copytree(request.getfixturevalue("demo"), reader.folder / "results" / name)
    for block in blocks(page):
        if not excused(block) and block.language != "text":
            reader.follow(block)
