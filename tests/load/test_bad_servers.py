"""Servers that fail: each request is a row that says how, and the command ends with 1."""

import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest
from load_helpers import ERROR, HALF, OK, Inside, Request, Server

import uncia as package
from uncia.errors import UnciaError

FEW = {"rate": "50/s", "duration": "200ms"}


@pytest.fixture
def refusing() -> Iterator[str]:
    """A URL on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"


def outcomes(url: str, **more: object) -> tuple[set[str], str]:
    rows = package.load(url, **FEW, **more)  # type: ignore[arg-type]
    assert rows.num_rows == 10
    return set(rows.column("outcome").to_pylist()), str(rows.column("error")[0])


def test_a_server_that_fails_makes_the_command_fail(inside: Inside, tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    with Server(lambda request: ERROR) as server:
        arguments = ("load", server.url, "--rate", "50/s", "--duration", "200ms")
        ended = inside(*arguments, "--out", out)
        allowed = inside(*arguments, "--allow-failures")
    assert ended.code == 1
    assert "10 of 10 requests failed: 10 function_error" in ended.err
    assert "10 x function_error of load: HTTP 503: busy" in ended.out
    assert pyarrow.parquet.read_table(out).column("status").to_pylist() == [503] * 10
    assert allowed.code == 0, allowed.err


def test_half_an_answer_is_told_as_such() -> None:
    with Server(lambda request: HALF, closes=True) as server:
        result, error = outcomes(server.url)
    assert result == {"transport_error"}
    assert "closed" in error, error


def test_an_answer_that_is_not_http() -> None:
    with Server(lambda request: b"SSH-2.0-OpenSSH\r\n\r\n", closes=True) as server:
        result, error = outcomes(server.url)
    assert result == {"transport_error"}
    assert error != "None"


def test_a_connection_that_is_reset() -> None:
    with Server(lambda request: None) as server:
        result, _ = outcomes(server.url)
    assert result == {"transport_error"}


def test_nothing_listens(refusing: str) -> None:
    result, error = outcomes(refusing)
    assert result == {"transport_error"}
    assert "refused" in error


def test_no_answer_in_time() -> None:
    release = threading.Event()

    def never(request: Request) -> bytes:
        release.wait(30)
        return OK

    with Server(never) as server:
        result, error = outcomes(server.url, timeout="300ms")
        release.set()
    assert result == {"timeout"}
    assert error != "None"


def test_a_host_that_does_not_exist(inside: Inside) -> None:
    ended = inside("load", "http://no-such-host.invalid/", "--rate", "1/s", "--duration", "1s")
    assert ended.code == 2
    assert "no-such-host.invalid" in ended.err
    assert "Traceback" not in ended.err


def test_a_server_whose_certificate_nobody_vouches_for(tmp_path: Path) -> None:
    certificate = _certificate(tmp_path)
    with _TlsServer(certificate) as url:
        result, error = outcomes(url)
        assert result == {"transport_error"}
        assert "certificate" in error.lower(), error
        assert outcomes(url, insecure=True)[0] == {"ok"}
        assert outcomes(url, ca_file=certificate)[0] == {"ok"}


def test_a_certificate_file_that_is_none(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate\n")
    for file in (wrong, tmp_path / "missing.pem"):
        with pytest.raises(UnciaError, match=file.name):
            package.load("https://127.0.0.1:1/", **FEW, ca_file=file)  # type: ignore[arg-type]


class _TlsServer:
    """The server behind TLS, a thread per connection."""

    def __init__(self, certificate: Path) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)

    def __enter__(self) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        threading.Thread(target=self._accept, daemon=True).start()
        return f"https://localhost:{self._listener.getsockname()[1]}/"

    def __exit__(self, *_error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        try:
            with self._context.wrap_socket(plain, server_side=True) as connection:
                pending = b""
                while data := connection.recv(65_536):
                    pending += data
                    while b"\r\n\r\n" in pending:
                        _, _, pending = pending.partition(b"\r\n\r\n")
                        connection.sendall(OK)
        except OSError:
            pass


def _certificate(folder: Path) -> Path:
    """A self-signed certificate for localhost with its key, in one file."""
    file = folder / "server.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ["-subj", "/CN=uncia-test", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    # Otherwise it is an authority's, which no server may show as its own.
    kind = ["-addext", "basicConstraints=critical,CA:FALSE"]
    files = ["-keyout", str(file), "-out", f"{file}.crt"]
    subprocess.run([*command.split(), *names, *kind, *files], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file
