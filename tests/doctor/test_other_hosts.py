"""Monitors on other machines: a real sshd, its rows and clock, and what is left of it all."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sshd
import yaml
from patience import scaled
from sshd import Sshd

from uncia import engine, record
from uncia.doctor.clocks import Clock, Exchange, Offset, bound_ns, offset
from uncia.doctor.ssh import Address
from uncia.experiment.model import ExperimentFile
from uncia.report.monitored import clock_sentence
from uncia.version import __version__


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Sshd]:
    with sshd.running(tmp_path) as server:
        yield server
        assert server.left() == ([], [])


def _start(host: Sshd, out: Path, *arguments: str, url: str | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "uncia", "monitor", "-m", "machine", "--out", str(out)]
    return subprocess.Popen(
        [*command, "--host", url or host.url, *arguments],
        env={**os.environ, "PATH": host.path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _run(host: Sshd, out: Path, *arguments: str, url: str | None = None) -> tuple[int, str, str]:
    process = _start(host, out, *arguments, url=url)
    stdout, stderr = process.communicate(timeout=scaled(120))
    return process.returncode, stdout, stderr


def _await_rows(out: Path) -> None:
    """Wait until rows of the host are here."""
    end = time.monotonic() + scaled(60)
    while time.monotonic() < end:
        for part in out.glob("machine.*.arrows"):
            if part.stat().st_size > 8192:
                return
        time.sleep(0.05)
    raise AssertionError(f"no rows came: {list(out.iterdir()) if out.exists() else out}")


def test_rows_come_from_the_host_and_nothing_is_left_there(host: Sshd, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = time.time_ns()
    code, stdout, stderr = _run(host, out, "--host", "local", "--for", "1s", "--json")
    after = time.time_ns()
    assert code == 0, stderr
    rows = record.read(out / "machine.parquet", "machine").to_pylist()
    assert [path.name for path in out.iterdir()] == ["machine.parquet"]
    name = f"127.0.0.1:{host.port}"
    assert {row["host"] for row in rows} == {None, name}
    counters = {row["counter"] for row in rows if row["host"] is None}
    there = {row["counter"] for row in rows if row["host"] == name}
    assert there == counters | {"clock.offset_ns", "clock.error_ns"}
    assert all(0 <= row["time"] <= after - before for row in rows)
    # It is the same clock, so the offset that was measured is its error alone.
    facts = json.loads(stdout)["hosts"][name]
    clock = facts["clock"]
    for measured in (clock["before"], clock["after"]):
        assert abs(measured["offset_ns"]) <= measured["error_ns"] + 1_000_000
        assert measured["round_trips"] == 20
    assert clock["corrected_by_ns"] == -clock["before"]["offset_ns"]
    assert clock["bound_ns"] >= clock["before"]["error_ns"] > 0
    assert facts["system"] == f"Linux {os.uname().machine}"
    assert facts["cpus"] > 0


def test_an_engine_that_is_there_is_named(host: Sshd, tmp_path: Path) -> None:
    path = str(engine.binary())
    code, stdout, stderr = _run(
        host, tmp_path / "a", "--for", "300ms", "--json", "--host-engine", path
    )
    assert code == 0, stderr
    (facts,) = json.loads(stdout)["hosts"].values()
    assert facts["engine"] == path
    blanks = tmp_path / "two  blanks\tand a tab"
    blanks.symlink_to(path)
    code, _, stderr = _run(
        host, tmp_path / "c", "--for", "300ms", "--json", "--host-engine", str(blanks)
    )
    assert code == 0, stderr
    for engine_there, words in (
        ("/no/engine", "there is no program /no/engine there"),
        ("/bin/false", "/bin/false there is no engine that monitors (exit code 1)"),
        ("/bin/cat", "name one with `engine` (--host-engine)"),
    ):
        code, _, stderr = _run(host, tmp_path / "b", "--for", "1s", "--host-engine", engine_there)
        assert code != 0
        assert words in stderr
        assert "Traceback" not in stderr
        assert not (tmp_path / "b").exists()


ENDS = """\
#!{python}
import json, sys, time
def tell(event, **values):
    print(json.dumps({{"event": event, **values}}), file=sys.stderr, flush=True)
tell("ready", hostname="there", kernel="6", cpus=1, version="{version}")
for line in sys.stdin:
    asked = json.loads(line)
    if "clock" not in asked:
        break
    now = time.time_ns()
    tell("clock", id=asked["clock"], received_unix_ns=now, sent_unix_ns=now)
"""


def test_a_host_whose_engine_ends_at_once_costs_nobody_elses_rows(
    host: Sshd, tmp_path: Path
) -> None:
    program = tmp_path / "engine"
    program.write_text(ENDS.format(python=sys.executable, version=__version__))
    program.chmod(0o755)
    out = tmp_path / "out"
    _, _, stderr = _run(host, out, "--host", "local", "--for", "1s", "--host-engine", str(program))
    assert f"host 127.0.0.1:{host.port}:" in stderr
    assert "Traceback" not in stderr
    assert [path.name for path in out.iterdir()] == ["machine.parquet"]
    assert set(record.read(out / "machine.parquet", "machine")["host"].to_pylist()) == {None}


def test_hosts_whose_names_differ_in_punctuation_alone_have_rows_each(
    host: Sshd, tmp_path: Path
) -> None:
    with (host.folder / "ssh_config").open("a") as config:
        config.write(f"Host node.1 node_1\nHostName 127.0.0.1\nPort {host.port}\n")
    out = tmp_path / "out"
    code, _, stderr = _run(
        host, out, "--for", "300ms", "--json", "--host", "ssh://node_1", url="ssh://node.1"
    )
    assert code == 0, stderr
    hosts = record.read(out / "machine.parquet", "machine")["host"].to_pylist()
    assert set(hosts) == {"node.1", "node_1"}


def test_streams_that_others_write_are_left_alone(host: Sshd, tmp_path: Path) -> None:
    stream = tmp_path / "invocations.0.arrows"
    stream.write_bytes(b"")
    code, _, stderr = _run(host, tmp_path, "--for", "1s")
    assert code != 0
    assert f"{stream} exists already" in stderr
    assert stream.exists()


def test_what_keeps_monitors_from_a_host_is_a_sentence(host: Sshd, tmp_path: Path) -> None:
    config, known = host.folder / "ssh_config", host.folder / "known"
    right, key = config.read_text(), known.read_text()

    def refused(url: str | None = None) -> str:
        code, _, stderr = _run(host, tmp_path / "out", "--for", "1s", url=url)
        assert code != 0
        assert "Traceback" not in stderr
        return stderr

    assert "Connection refused" in refused("ssh://127.0.0.1:1")
    known.write_text("")
    assert "connect once by hand to see its key" in refused()
    known.write_text(key)
    config.write_text(right.replace("/user\n", "/host\n"))
    assert "ssh needs a key of yours" in refused()
    config.write_text(right)
    host.temporary.rmdir()
    assert "no temporary folder can be made there" in refused()
    host.temporary.mkdir()
    assert "names no machine" in refused("http://127.0.0.1")


def test_a_machine_of_another_kind_is_told(host: Sshd, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    config = host.folder / "sshd_config"
    text = config.read_text().replace("SetEnv ", f"SetEnv PATH={tools}:{os.environ['PATH']} ")
    config.write_text(text)
    host.stop()
    host.start()
    uname = tools / "uname"
    uname.write_text('#!/bin/sh\ntest "$1" = -s && echo Linux || echo riscv128\n')
    uname.chmod(0o755)
    code, _, stderr = _run(host, tmp_path / "out", "--for", "1s")
    assert code != 0
    assert "it is Linux riscv128, and this engine is for" in stderr
    uname.unlink()
    # An engine whose loader is missing, as where the C library is another one.
    checksum = tools / "sha256sum"
    checksum.write_text(
        "#!/bin/sh\n"
        f"for copy in {host.temporary}/*/uncia-engine; do\n"
        f'  /usr/bin/sha256sum "$copy" | cut -d" " -f1\n'
        '  printf "#!/no/loader\\n" > "$copy"\n'
        "done\n"
    )
    checksum.chmod(0o755)
    code, _, stderr = _run(host, tmp_path / "out", "--for", "1s")
    assert code != 0
    assert "its C library is another one" in stderr
    checksum.write_text("#!/bin/sh\necho 0\n")
    code, _, stderr = _run(host, tmp_path / "out", "--for", "1s")
    assert code != 0
    assert "did not arrive whole" in stderr


def test_a_lost_connection_costs_the_remaining_rows(host: Sshd, tmp_path: Path) -> None:
    out = tmp_path / "out"
    end = tmp_path / "end"
    code = f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.05)"
    process = _start(host, out, "--host", "local", "--", sys.executable, "-c", code)
    _await_rows(out)
    host.lose()
    assert host.left() == ([], [])
    end.touch()
    _, stderr = process.communicate(timeout=scaled(60))
    assert process.returncode == 1
    assert "the connection was lost" in stderr
    assert "rows after that are missing" in stderr
    assert "Traceback" not in stderr
    rows = record.read(out / "machine.parquet", "machine")
    hosts = rows.column("host").to_pylist()
    assert hosts.count(None) > 0
    assert hosts.count(f"127.0.0.1:{host.port}") > 0


def test_nothing_outlives_whoever_asked(host: Sshd, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = _start(host, out)
    _await_rows(out)
    assert host.programs()
    process.kill()
    process.communicate()
    assert host.left() == ([], [])
    # What came until then is not lost.
    record.recover_folder(out)
    assert record.read(out / "machine.parquet", "machine").num_rows > 0


def test_a_run_keeps_its_hosts_and_goes_on_without_those_it_cannot_reach(
    host: Sshd, tmp_path: Path
) -> None:
    file = tmp_path / "watched.yaml"
    file.write_text(
        "name: watched\n"
        "platform: {kind: embedded}\n"
        "functions: {f: {source: hello}}\n"
        "monitors:\n"
        f"  - {{monitor: machine, hosts: ['{host.url}', ssh://127.0.0.1:1]}}\n"
        "  - {monitor: pressure}\n"
        "experiments:\n"
        "  e: {function: f, arrivals: {kind: constant, rate: 5/s, duration: 1s}}\n"
    )
    out = tmp_path / "run"
    done = subprocess.run(
        [sys.executable, "-m", "uncia", "run", str(file), "--out", str(out)],
        env={**os.environ, "PATH": host.path},
        capture_output=True,
        text=True,
        timeout=scaled(240),
    )
    assert done.returncode == 0, done.stderr
    assert "Warning: host 127.0.0.1:1: ssh does not connect" in done.stderr
    description = yaml.safe_load((out / "run.yaml").read_text())
    name = f"127.0.0.1:{host.port}"
    assert set(description["hosts"]) == {name}
    assert description["hosts"][name]["clock"]["after"]["error_ns"] > 0
    assert any("Connection refused" in warning for warning in description["warnings"])
    rows = record.read(out, "machine").to_pylist()
    assert {row["monitor"] for row in rows if row["host"] == name} == {"machine", "clock"}
    assert {row["monitor"] for row in rows if row["host"] is None} >= {"noise", "pressure"}
    assert record.read(out).num_rows == 5
    assert f"The clock of {name}" in (out / "report.html").read_text()


def test_an_offset_within_its_error_may_be_none() -> None:
    def sentence(offset_ns: int) -> str:
        before = {"offset_ns": offset_ns, "error_ns": 100_000}
        return clock_sentence("node", {"before": before, "bound_ns": 250_000})

    assert sentence(-40_000) == (
        "The clock of node was 40.0 µs behind, which is within the error of 100 µs; times of its"
        " rows are corrected, within 250 µs."
    )
    assert sentence(2_000_000) == (
        "The clock of node was 2.00 ms ahead; times of its rows are corrected, within 250 µs."
    )


def test_the_shortest_round_trip_bounds_the_offset() -> None:
    # The clock there is 1,000 ahead; ways of 10 and 30, then of 5 and 7.
    slow = Exchange(0, 1_010, 1_015, 45)
    fast = Exchange(100, 1_105, 1_109, 116)
    measured = offset([slow, fast])
    assert measured == Offset(999, 6, 2)
    assert abs(measured.offset_ns - 1_000) <= measured.error_ns
    assert offset([]) is None
    assert offset([Exchange(0, 10, 5, 20)]) is None
    assert bound_ns(Offset(999, 6, 2), Offset(1_002, 5, 2)) == 8
    assert bound_ns(Offset(999, 60, 2), Offset(1_002, 5, 2)) == 60
    clock = Clock()
    assert abs(clock.unix_ns() - time.time_ns()) < 10**9


def test_addresses_name_machines() -> None:
    assert Address.parse("ssh://me@Node:2222") == Address("Node", "me", 2222)
    assert Address.parse("ssh://me@Node:2222").name == "Node:2222"
    assert Address.parse("ssh://[::1]:22").name == "[::1]:22"
    assert Address.parse("ssh://node/").url == "ssh://node"
    assert Address.parse("ssh://[FE80::1%Eth0]:22") == Address("FE80::1%Eth0", None, 22)
    # As RFC 6874 writes it; but a zone may be called 25.
    assert Address.parse("ssh://me@[fe80::1%25Eth0]").host == "fe80::1%Eth0"
    assert Address.parse("ssh://[fe80::1%25]").host == "fe80::1%25"
    for wrong in (
        "node",
        "ssh://",
        "ssh://-oProxyCommand=x",
        "ssh://a:b@c",
        "ssh://a/b",
        "ssh://a:x",
    ):
        with pytest.raises(ValueError, match=r"machine|password"):
            Address.parse(wrong)


@pytest.mark.parametrize(
    ("monitors", "words"),
    [
        ([{"monitor": "perf", "hosts": []}], "at least 1 item"),
        ([{"monitor": "perf", "hosts": ["node"]}], "names no machine"),
        ([{"monitor": "perf", "hosts": ["ssh://a", "ssh://b@a"]}], "named twice"),
        (
            [
                {"monitor": "perf", "hosts": ["ssh://a"]},
                {"monitor": "cgroup", "hosts": [{"url": "ssh://a", "engine": "/e"}]},
            ],
            "with another user or engine",
        ),
        ([{"monitor": "machine", "name": "noise"}], "watches beside every run"),
    ],
)
def test_hosts_in_files_are_checked(monitors: list[object], words: str) -> None:
    document = {
        "name": "x",
        "platform": {"kind": "embedded"},
        "functions": {"f": {"function": "hello"}},
        "experiments": {"e": {"arrivals": {"process": "burst"}}},
        "monitors": monitors,
    }
    with pytest.raises(ValueError, match=words):
        ExperimentFile.model_validate(document)
