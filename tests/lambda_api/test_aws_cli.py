"""The AWS CLI, as PyPI has it, as a client of the platform."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import scaled

from .conftest import ROLE, Platform, package

SOURCE = """
import word

def handler(event, context):
    return [word.WORD, event["n"], context.function_version]
"""


class Cli:
    """``aws lambda`` in a folder of its own, with no other configuration than the endpoint."""

    def __init__(self, platform: Platform, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "AWS_ENDPOINT_URL_LAMBDA": f"http://{platform.address}",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_PAGER": "",
        }

    def run(self, operation: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "awscli", "lambda", operation, *options]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=scaled(120),
        )

    def __call__(self, operation: str, *options: str) -> Any:
        """The answer's JSON."""
        done = self.run(operation, *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout or "null")


def test_a_function_and_a_layer_live_by_the_cli(platform: Platform, tmp_path: Path) -> None:
    pytest.importorskip("awscli", reason="the AWS CLI is missing: make install-dev")
    aws = Cli(platform, tmp_path)
    (tmp_path / "layer.zip").write_bytes(package({"python/word.py": "WORD = 'layered'"}))
    (tmp_path / "code.zip").write_bytes(package(SOURCE))
    layer = aws("publish-layer-version", "--layer-name", "words", "--zip-file", "fileb://layer.zip")
    made = aws(
        *("create-function", "--function-name", "f", "--runtime", "python3.11"),
        *("--role", ROLE, "--handler", "handler.handler", "--zip-file", "fileb://code.zip"),
        *("--layers", layer["LayerVersionArn"], "--timeout", "30", "--publish"),
    )
    assert (made["Version"], made["Layers"][0]["Arn"]) == ("1", layer["LayerVersionArn"])
    invoked = aws("invoke", "--function-name", "f:1", "--payload", '{"n": 1}', "answer.json")
    assert (invoked["StatusCode"], invoked["ExecutedVersion"]) == (200, "1")
    assert json.loads((tmp_path / "answer.json").read_text()) == ["layered", 1, "1"]
    (tmp_path / "code.zip").write_bytes(package(SOURCE.replace("event", "{'n': 2} or event")))
    updated = aws(
        *("update-function-code", "--function-name", "f", "--publish"),
        *("--zip-file", "fileb://code.zip"),
    )
    assert updated["Version"] == "2"
    listed = aws("list-functions", "--function-version", "ALL")["Functions"]
    assert [it["Version"] for it in listed] == ["$LATEST", "1", "2"]
    aws("delete-function", "--function-name", "f")
    missing = aws.run("get-function", "--function-name", "f")
    assert (missing.returncode, "ResourceNotFoundException" in missing.stderr) == (255, True)
