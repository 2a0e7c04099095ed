"""``uncia doctor`` as a person calls it."""

import contextlib
import json
import socket
import socketserver
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from uncia.cli import build
from uncia.cli.doctor import _running_platform
from uncia.doctor.checks import _features, platform_checks
from uncia.doctor.probe import Probe
from uncia.doctor.programs import program_checks
from uncia.doctor.report import Report
from uncia.platforms.served import Served
from uncia.platforms.server import Server


def test_it_prints_every_check() -> None:
    result = CliRunner().invoke(build(), ["doctor", "--seconds", "0"])
    assert result.exit_code == 0, result.output
    for name in ("system", "engine", "runtime-python", "cpus"):
        assert name in result.output
    assert "as they should be" in result.output


def test_it_prints_json() -> None:
    result = CliRunner().invoke(build(), ["doctor", "--json", "--seconds", "0.05"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert {"id", "status", "finding", "consequence", "remedy"} == set(report["checks"][0])
    assert {check["status"] for check in report["checks"]} <= {"ok", "warn", "missing"}
    assert report["machine"]["noise"]["duration_s"] == 0.05


def test_sentences_of_what_is_missing_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.setenv("PATH", "/nowhere")
    (branches,) = (check for check in program_checks() if check.id == "branches")
    assert branches.remedy.startswith("Run the command on such a machine. Install it: apt-get")
    assert ".." not in branches.remedy + branches.finding


def test_a_negative_time_is_refused() -> None:
    result = CliRunner().invoke(build(), ["doctor", "--seconds", "-1"])
    assert result.exit_code == 2


def test_a_running_platform_says_what_it_does_without(engine_binary: Path, tmp_path: Path) -> None:
    journal = tmp_path / "state/journal"
    journal.mkdir(parents=True)
    (journal / "notes.records").write_text("of somebody else, and long enough for a head of a file")
    command = [engine_binary, "serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "state"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        arguments = ["doctor", "--json", "--seconds", "0", "--endpoint", address]
        result = CliRunner().invoke(build(), arguments)
        process.terminate()
    assert result.exit_code == 0, result.output
    (check,) = (it for it in json.loads(result.stdout)["checks"] if it["id"] == "platform")
    assert check["status"] == "warn"
    assert "notes.records is not of this log's journal: it is kept as" in check["finding"]
    # Nobody answers there any more.
    for given, variables in ((arguments, {}), (arguments[:-2], {"UNCIA_ENDPOINT": address})):
        result = CliRunner().invoke(build(), given, env=variables)
        assert result.exit_code == 0, result.output
        checks = {it["id"]: it for it in json.loads(result.stdout)["checks"]}
        assert checks["platform"]["status"] == "missing"
        assert f"o platform answers at {address}" in checks["platform"]["finding"]
        assert "engine" in checks


class _Strange(socketserver.BaseRequestHandler):
    """Answers as the test wants; without an end, it goes on until nobody reads any more."""

    answer = b""
    is_endless = False

    def handle(self) -> None:
        self.request.recv(4096)
        with contextlib.suppress(OSError):
            self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
            self.request.sendall(self.answer)
            while self.is_endless:
                self.request.sendall(self.answer)


@pytest.mark.parametrize(
    ("config", "is_on", "sentence"),
    [
        ({}, True, None),
        ({"precedence": False}, False, None),
        ({"cpu_sharing": "weights", "precedence": False}, False, None),
        ({"cpu_sharing": "weights"}, False, None),
        ({"cpu_sharing": "weights", "precedence": True}, False, "precedence has no effect"),
    ],
)
def test_a_running_platform_says_whether_precedence_is_on(
    config: dict[str, Any],
    is_on: bool,
    sentence: str | None,
    engine_binary: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("UNCIA_ENGINE", str(engine_binary))
    server = Server(tmp_path / "state", config)
    try:
        health = Served(server.address).health()
        (check,) = platform_checks(server.address, health)
    finally:
        server.stop()
    assert health["precedence"] is is_on
    assert check.finding.endswith(f"Precedence is {'on' if is_on else 'off'}.")
    said = [it for it in health["warnings"] if "precedence" in it]
    assert (sentence is None) == (not said)
    assert sentence is None or sentence in said[0]


@pytest.mark.parametrize(
    ("answer", "is_endless"),
    [
        (b"[" * 200_000, False),
        (b"no JSON", False),
        (b"[]", False),
        (b'{"instances": 3}', False),
        (b'{"instances": {}}', False),
        (b" " * 65_536, True),
    ],
)
def test_whoever_else_listens_there_is_no_platform(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, is_endless: bool
) -> None:
    monkeypatch.delenv("UNCIA_ENDPOINT", raising=False)
    handler = type("Handler", (_Strange,), {"answer": answer, "is_endless": is_endless})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr("uncia.cli.doctor._ADDRESS", address)
        assert _running_platform(None) == []
        (check,) = _running_platform(address)
        assert check.status == "missing"
        assert "is no platform of Uncia's" in check.finding
        server.shutdown()


def test_who_listens_and_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    settimeout = socket.socket.settimeout

    def note(self: socket.socket, seconds: float | None) -> None:
        waits.append(seconds)
        settimeout(self, seconds)

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr("uncia.cli.doctor._ADDRESS", address)
        monkeypatch.setattr("socket.socket.settimeout", note)
        assert _running_platform(None) == []
    assert waits
    assert all(seconds is not None and seconds <= 1 for seconds in waits)


def test_a_platform_at_the_usual_address_is_found(
    engine_binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [engine_binary, "serve", "--listen", "127.0.0.1:0", "--state", tmp_path / "state"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        monkeypatch.setattr("uncia.cli.doctor._ADDRESS", address)
        (check,) = _running_platform(None)
        process.terminate()
    assert check.id == "platform"
    assert check.status in ("ok", "warn")


def test_features_that_are_off_are_a_warning() -> None:
    features: dict[str, Any] = {
        "journal_format": 1,
        "byte_code": ["python"],
        "start_from": ["fresh", "prepared"],
        "not_started_from": {},
        "system_call_filter": True,
        "not_awake": None,
    }
    (check,) = _features(Probe(Path("engine"), {"features": features}))
    assert check.status == "ok"
    for change, wanted in (
        ({"not_started_from": {"zygote": "Only root has them."}}, "starts from zygote"),
        ({"system_call_filter": False}, "the filter of system calls"),
        ({"not_awake": "no CPU idles"}, "keeping idle CPUs awake"),
    ):
        (check,) = _features(Probe(Path("engine"), {"features": features | change}))
        assert check.status == "warn"
        assert wanted in check.consequence
        # A run asks for none of it, or learns from the platform that it is off.
        assert Report((check,), {}).warnings() == []
    (check,) = _features(
        Probe(
            Path("engine"),
            {"features": features | {"not_started_from": {"zygote": "Only root has them."}}},
        )
    )
    assert "Not from zygote: Only root has them." in check.finding
