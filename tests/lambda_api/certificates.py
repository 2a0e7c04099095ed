"""A certificate of an authority of the test's own, for a platform that speaks TLS."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

NAMES = "subjectAltName=DNS:localhost,DNS:*.lambda-url.localhost,IP:127.0.0.1"


@dataclass(frozen=True)
class Certificate:
    """The files of a certificate: of its authority, its own, and its key's."""

    authority: Path
    certificate: Path
    key: Path

    @property
    def options(self) -> list[str | Path]:
        """What a platform is told of it."""
        return ["--tls-cert", self.certificate, "--tls-key", self.key]


def make(folder: Path) -> Certificate:
    """Make an authority, and a certificate for this machine that it signs."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the certificate is made by openssl, which is not installed")

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run(
        "req",
        "-x509",
        *key,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=test",
        "-days",
        "2",
    )
    run("req", *key, "-keyout", "own.key", "-out", "own.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text(NAMES)
    run(
        *("x509", "-req", "-in", "own.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2"),
        *("-CAcreateserial", "-extfile", "names", "-out", "own.pem"),
    )
    (folder / "own.key").chmod(0o600)
    return Certificate(folder / "ca.pem", folder / "own.pem", folder / "own.key")
