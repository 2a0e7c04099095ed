"""Each invocation sees its own trace id, where functions look for it."""

import shutil

import pytest

from .conftest import Platform

PYTHON = """
import os

def handler(event, context):
    return [os.environ["_X_AMZN_TRACE_ID"], dict(os.environ)["_X_AMZN_TRACE_ID"]]
"""
NODE = """
const { execSync } = require('child_process');
exports.handler = async () => {
  const name = '_X_AMZN_TRACE_ID';
  const copy = { ...process.env };
  const child = execSync(`echo $${name}`).toString().trim();
  const seen = [process.env[name], copy[name], child];
  if (!(name in process.env) || !Object.keys(process.env).includes(name)) seen.push('not there');
  return seen;
};
"""


def check(platform: Platform, ways: int) -> None:
    answers = [platform.invoke("f")[1] for _ in range(3)]
    assert all(len(answer) == ways and len(set(answer)) == 1 for answer in answers), answers
    ids = {answer[0] for answer in answers}
    assert len(ids) == 3
    assert all(text.startswith("Root=1-") for text in ids)


def test_python(platform: Platform) -> None:
    platform.create("f", PYTHON)
    check(platform, 2)


def test_node(platform: Platform) -> None:
    if shutil.which("node") is None:
        pytest.skip("needs Node.js")
    platform.create(
        "f", {"index.js": NODE}, Runtime="nodejs20.x", Handler="index.handler", MemorySize=512
    )
    check(platform, 3)
