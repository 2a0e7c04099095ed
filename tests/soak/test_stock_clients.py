"""Runtime clients that others publish, fetched from their registries."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from lambda_api.conftest import Platform

from uncia import functions
from uncia.errors import UnciaError

STOCK = """\
package main

import (
	"context"
	"errors"

	"github.com/aws/aws-lambda-go/lambda"
)

type event struct {
	Name string `json:"name"`
}

func main() {
	lambda.Start(func(_ context.Context, given event) (map[string]string, error) {
		if given.Name == "" {
			return nil, errors.New("nobody to greet")
		}
		return map[string]string{"greeting": "hello " + given.Name}, nil
	})
}
"""
MODULE = "module function\n\ngo 1.21\n\nrequire github.com/aws/aws-lambda-go v1.49.0\n"
SUMS = """\
github.com/aws/aws-lambda-go v1.49.0 h1:z4VhTqkFZPM3xpEtTqWqRqsRH4TZBMJqTkRiBPYLqIQ=
github.com/aws/aws-lambda-go v1.49.0/go.mod h1:dpMpZgvWx5vuQJfBt0zqBha60q7Dd7RfgJv23DymV8A=
"""


def test_amazons_library_for_go(
    engine_binary: Path, state: Path, tmp_path: Path, *, long: bool
) -> None:
    if not long:
        pytest.skip("compiles Go's library for HTTP: make soak")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "main.go").write_text(STOCK)
    (folder / "go.mod").write_text(MODULE)
    (folder / "go.sum").write_text(SUMS)
    try:
        made = functions.package(folder)
    except UnciaError as error:
        if "no Go" in error.message or re.search(r"dial tcp|lookup|Gateway", error.message):
            pytest.skip(error.message)
        raise
    platform = Platform(engine_binary, state)
    try:
        platform.create(
            "f",
            Code={"ZipFile": made.read_bytes()},
            Runtime="provided.al2023",
            Handler=made.handler,
        )
        assert platform.invoke("f", {"name": "you"})[1] == {"greeting": "hello you"}
        answer, error = platform.invoke("f", {})
        assert answer["FunctionError"] == "Unhandled"
        assert error == {"errorMessage": "nobody to greet", "errorType": "errorString"}
    finally:
        assert platform.stop() == 0


# In place of the platform's client, in the process that this has started.
PYTHON = """
from awslambdaric.__main__ import main

main(["awslambdaric", "app.handler"])
"""
HANDLER = """
def handler(event, context):
    if "raises" in event:
        raise ValueError("x" * event["raises"])
    return [event["name"], context.get_remaining_time_in_millis() > 0]
"""


def test_amazons_client_for_python(
    engine_binary: Path, state: Path, tmp_path: Path, *, long: bool
) -> None:
    if not long:
        pytest.skip("fetches a client from PyPI: make soak")
    folder = tmp_path / "mine"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    fetched = subprocess.run(
        [*install, "--target", folder, "awslambdaric==4.2.2"],
        capture_output=True,
        text=True,
        check=False,
    )
    if fetched.returncode != 0:
        pytest.skip(f"awslambdaric cannot be installed: {fetched.stderr.strip()[-200:]}")
    (folder / "handler.py").write_text(PYTHON)
    (folder / "app.py").write_text(HANDLER)
    package = shutil.make_archive(str(tmp_path / "package"), "zip", folder)
    platform = Platform(engine_binary, state)
    try:
        platform.create("f", Code={"ZipFile": Path(package).read_bytes()})
        assert platform.invoke("f", {"name": "you"})[1] == ["you", True]
        # What an exception says stands in a header, too, with its stack.
        for size in (10, 70_000, 2_000_000):
            answer, error = platform.invoke("f", {"raises": size})
            assert answer["FunctionError"] == "Unhandled"
            assert (error["errorType"], error["errorMessage"]) == ("ValueError", "x" * size)
        assert platform.headers("f", {"name": "again"})["x-uncia-start"] == "warm"
    finally:
        assert platform.stop() == 0
