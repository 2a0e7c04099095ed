"""``uncia serve`` over TLS, and the other commands with it."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lambda_api import certificates
from lambda_api.certificates import Certificate

from uncia.errors import UnciaError
from uncia.platforms import wire
from uncia.platforms.boto import client

Command = Callable[..., tuple[int, str, str]]

KEY, SECRET = "AKIDEXAMPLE", "not/guessed+by/anybody"
TOKEN = "0123456789-of-the-team"


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return certificates.make(tmp_path)


@pytest.fixture
def served(
    uncia: Callable[..., "subprocess.Popen[str]"],
    certificate: Certificate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator["subprocess.Popen[str]"]:
    """A platform whose credentials are in its environment, and in this one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    monkeypatch.setenv("UNCIA_TOKEN", TOKEN)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate.authority))
    options = ("--listen", "0.0.0.0:0", "--state", tmp_path / "s", *certificate.options)
    process = uncia("serve", *options)
    assert process.stdout is not None
    greeting = re.match(
        r"Serving AWS Lambda's API on https://[^:]+:(\d+) ", process.stdout.readline()
    )
    assert greeting is not None
    port = greeting[1]
    monkeypatch.setenv("UNCIA_ENDPOINT", f"https://localhost:{port}")
    yield process
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert not (tmp_path / "s" / "control.sock").exists()


@pytest.mark.parametrize("shown", ["token", "signature"])
def test_commands_show_what_the_environment_has(
    served: "subprocess.Popen[str]",
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shown: str,
) -> None:
    if shown == "signature":
        monkeypatch.delenv("UNCIA_TOKEN")
    folder = tmp_path / "greet"
    folder.mkdir()
    (folder / "handler.py").write_text("def handler(event, context):\n    return event\n")
    code, out, err = command("deploy", folder, "--json")
    assert code == 0, err
    url = json.loads(out)["url"]
    assert url.startswith("https://")
    code, out, err = command("invoke", "greet", '{"a": 1}')
    assert (code, json.loads(out)) == (0, {"a": 1}), err
    assert command("logs")[1].split()[1] == "greet"
    (entry,) = json.loads(command("ps", "--json")[1])["functions"]
    assert (entry["function"], entry["url"]) == ("greet", url)
    # Nobody's function is public unseen.
    made = client(served_at()).get_function_url_config(FunctionName="greet")
    assert made["AuthType"] == "AWS_IAM"
    # What the command prints of invocations and bills it learns by its own socket.
    assert served.stdout is not None
    assert any(" greet " in served.stdout.readline() for _ in range(6))
    assert command("rm", "greet")[0] == 0


def served_at() -> str:
    return os.environ["UNCIA_ENDPOINT"]


def test_what_is_not_shown_or_not_believed_is_said(
    served: "subprocess.Popen[str]", command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    del served
    monkeypatch.setenv("UNCIA_TOKEN", "another-token-of-theirs")
    code, _, err = command("ps")
    assert code == 1
    assert "refuses the credentials of the environment: The token" in err
    for name in ("UNCIA_TOKEN", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name)
    code, _, err = command("ps")
    assert code == 2
    assert "needs credentials" in err
    with pytest.raises(UnciaError, match="needs credentials"):
        client(served_at())
    monkeypatch.setenv("AWS_CA_BUNDLE", "/nowhere")
    monkeypatch.setenv("UNCIA_TOKEN", TOKEN)
    code, _, err = command("ps")
    assert "AWS_CA_BUNDLE: /nowhere has no certificates" in err
    monkeypatch.delenv("AWS_CA_BUNDLE")
    code, _, err = command("ps")
    assert code == 1
    assert "the certificate of" in err
    assert "AWS_CA_BUNDLE" in err


def test_an_address_may_be_a_socket() -> None:
    assert wire.url_of("unix:/run/a b.sock") == "unix://%2Frun%2Fa%20b.sock"
    assert wire.url_of("127.0.0.1:9001") == "http://127.0.0.1:9001"
    with pytest.raises(UnciaError, match="boto3 speaks to no unix socket"):
        client("unix:/run/a.sock")


@pytest.mark.parametrize("token", ["two\nlines-of-it", "not-ascii-\N{RIGHTWARDS ARROW}"])
def test_a_token_that_no_header_can_carry_is_an_error(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNCIA_TOKEN", token)
    with pytest.raises(UnciaError, match="UNCIA_TOKEN has characters that no request can carry"):
        wire.open_path("https://localhost:1", "/", 1)
