"""Runs packaged functions in processes of their own, as a platform would."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import function_compilers
import pytest
import runtime_api

from uncia.functions import Function, java, package

_PYTHON = """
import importlib, json, sys
sys.path.insert(0, ".")
module, _, name = sys.argv[1].rpartition(".")
handler = getattr(importlib.import_module(module), name)
for event in json.load(sys.stdin):
    try:
        print(json.dumps({"answer": handler(event, None)}))
    except Exception as error:
        print(json.dumps({"error": type(error).__name__, "message": str(error)}))
"""

_NODE = """
const [module, name] = process.argv[1].split(".");
const events = JSON.parse(require("fs").readFileSync(0, "utf8"));
(async () => {
  const handler = require(process.cwd() + "/" + module + ".js")[name];
  for (const event of events) {
    try {
      console.log(JSON.stringify({ answer: await handler(event) }));
    } catch (error) {
      console.log(JSON.stringify({ error: error.name, message: error.message }));
    }
  }
})();
"""

CLIENTS = Path(__file__).parents[2] / "crates" / "worker" / "runtime"
"""The clients of the Runtime API that the embedded platform has for its runtimes."""

Call = Callable[..., list[dict[str, Any]]]


def java_client(folders: pytest.TempPathFactory) -> Path:
    """The classes of the client of the Runtime API in Java, compiled once."""
    classes = folders.getbasetemp() / "java-client"
    if not classes.exists():
        sources = map(str, (CLIENTS / "java").rglob("*.java"))
        command = [java.find()[0], "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none"]
        subprocess.run([*command, "-d", classes, *sources], check=True)
    return classes


@pytest.fixture(scope="session")
def call(tmp_path_factory: pytest.TempPathFactory) -> Call:
    """``call(function, *events)``: one new process that answers the events one after another."""

    def invoke(
        function: str | Path | Function, *events: Any, runtime: str = "python", filler: int = 0
    ) -> list[dict[str, Any]]:
        if runtime in function_compilers.FIND:
            function_compilers.needs_compiler(runtime)
        packaged = package(function, runtime, filler=filler)
        folder = tmp_path_factory.mktemp(packaged.function)
        with zipfile.ZipFile(packaged.path) as archive:
            archive.extractall(folder)
        if runtime == "python":
            # -S and -I: nothing of the surroundings may help, only what is in the package.
            command = [sys.executable, "-I", "-S", "-B", "-c", _PYTHON, packaged.handler]
        elif runtime in ("provided", "go"):
            (folder / packaged.handler).chmod(0o755)
            return runtime_api.serve(folder / packaged.handler, events)
        elif runtime == "java":
            options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp")
            path = f"{folder}:{java_client(tmp_path_factory)}"
            env = {"_HANDLER": packaged.handler}
            java_path = java.find()[0]
            arguments = (*options, path, "uncia.runtime.Main")
            return runtime_api.serve(java_path, events, *arguments, env=env)
        elif runtime == "ruby":
            ruby = shutil.which("ruby")
            if ruby is None:
                pytest.skip("Ruby is not installed")
            client = CLIENTS / "bootstrap.rb"
            env = {"LAMBDA_TASK_ROOT": str(folder), "_HANDLER": packaged.handler}
            return runtime_api.serve(Path(ruby), events, "--disable=gems", str(client), env=env)
        else:
            node = shutil.which("node")
            if node is None:
                pytest.skip("node is not installed")
            command = [node, "-e", _NODE, packaged.handler]
        done = subprocess.run(
            command,
            cwd=folder,
            input=json.dumps(events),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        replies = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(replies) == len(events), done.stderr
        return replies

    return invoke


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder. Go keeps its own: its library takes half a minute to compile."""
    folder = tmp_path / "cache"
    folder.mkdir()
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "go-build"
    monkeypatch.setenv("GOCACHE", os.environ.get("GOCACHE") or str(usual))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder with a small function, to be spoilt."""
    folder = tmp_path / "mine"
    (folder / "python").mkdir(parents=True)
    (folder / "function.yaml").write_text(
        """\
name: mine
description: Says how many.
runtimes:
  python:
    handler: handler.handler
parameters:
  count:
    description: How many.
    type: integer
    default: 3
    min: 0
    max: 10
  pause:
    description: How long.
    type: number
    unit: ms
    default: 1ms
    min: 0ms
    max: 2s
sizes:
  test: {count: 1}
  small: {count: 2}
  large: {count: 10, pause: 1s}
answer:
  text: count is what was asked for.
  check:
    required: [count]
memory: 128MB
timeout: 3s
"""
    )
    (folder / "python" / "handler.py").write_text(
        "def handler(event, context):\n    return {'count': event['count']}\n"
    )
    return folder
