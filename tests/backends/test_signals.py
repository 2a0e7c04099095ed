"""A signal ends a long query at once, and nothing is left of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from uncia.interrupt import Interruption

QUERY = """
import sys
from pathlib import Path
import pyarrow as pa
from uncia.backends import connect

with connect(temporary=Path(sys.argv[1])) as backend:
    rows = backend.table(pa.table({"a": range(3_000_000)}))
    pairs = rows.cross_join(rows.view().rename(b="a"))
    print("computing", flush=True)
    backend.collect(pairs.filter((pairs["a"] * 31 + pairs["b"]) % 7 == 3).count().as_table())
"""

EARLY = """
import os, signal, sys, threading, time
from pathlib import Path
from uncia.backends import connect

signal.signal(signal.SIGINT, signal.default_int_handler)
with connect(temporary=Path(sys.argv[1])) as backend:
    def query():
        time.sleep(1)  # as a query is still being made
        pairs = "range(3000000) a(x), range(3000000) b(y)"
        raw = f"SELECT count(*) FROM {pairs} WHERE (x * 31 + y) % 7 = 3"
        return backend._connection.con.execute(raw).fetchall()

    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    backend._run(query)
"""

STARTING = """
import os, signal, sys, threading
from pathlib import Path
from uncia.backends import connect

signal.signal(signal.SIGINT, signal.default_int_handler)
begin = threading.Thread.start

def start(thread):
    begin(thread)
    threading.Thread.start = begin
    os.kill(os.getpid(), signal.SIGINT)

with connect(temporary=Path(sys.argv[1])) as backend:
    def query():
        pairs = "range(3000000) a(x), range(3000000) b(y)"
        raw = f"SELECT count(*) FROM {pairs} WHERE (x * 31 + y) % 7 = 3"
        return backend._connection.con.execute(raw).fetchall()

    threading.Thread.start = start
    backend._run(query)
"""

COMMAND = """
import os, signal, time, typer
import uncia.cli

def command():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    finally:
        print("closed")

app = typer.Typer()
app.command()(command)
uncia.cli.build = lambda name: app
uncia.cli.main()
"""

# As DuckDB does in the main thread, where it plans queries.
PLANNED = """
import os, signal, sys, time, typer
import uncia.cli

def command():
    try:
        os.kill(os.getpid(), getattr(signal, name))
        time.sleep(60)
    except BaseException:
        raise RuntimeError("Query interrupted") from None
    finally:
        print("closed")

name = sys.argv.pop()
app = typer.Typer()
app.command()(command)
uncia.cli.build = lambda name: app
uncia.cli.main()
"""


def test_ctrl_c_ends_a_query_that_would_take_hours(tmp_path: Path) -> None:
    query = subprocess.Popen(
        [sys.executable, "-c", QUERY, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert query.stdout is not None
        assert query.stdout.readline() == "computing\n"
        assert any(tmp_path.iterdir())
        query.send_signal(signal.SIGINT)
        _, errors = query.communicate(timeout=60)
    finally:
        query.kill()
    assert "KeyboardInterrupt" in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", [EARLY, STARTING], ids=["planned", "starting"])
def test_an_interrupt_before_the_query_has_begun_is_not_forgotten(
    tmp_path: Path, script: str
) -> None:
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "KeyboardInterrupt" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_command_ends_by_an_exception_when_it_is_terminated() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (143, "closed\n")


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_the_command_ends_quietly_where_duckdb_hides_the_signal(name: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLANNED, name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "closed\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_is_interrupted_where_duckdb_hides_the_signal(number: int) -> None:
    def query() -> None:
        try:
            os.kill(os.getpid(), number)
            time.sleep(60)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None

    interruption = Interruption()
    with pytest.raises(KeyboardInterrupt), interruption.listening():
        query()
    assert interruption.exit_code == 128 + number
    with pytest.raises(RuntimeError, match="own"), Interruption().listening():
        raise RuntimeError("own")
