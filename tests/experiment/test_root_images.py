"""Experiments with functions that bring a root, on the embedded platform."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from run_helpers import experiment, rows

from uncia.errors import UnciaError
from uncia.functions import load
from uncia.functions.images import Execution, Layer, write_image
from uncia.layouts import LayerWriter

FUNCTION = """
name: rooted
description: Answers what is in the root.
runtimes: {provided: {source: bootstrap.c}}
parameters: {}
sizes: {test: {}, small: {}, large: {}}
answer: {text: Anything.}
memory: 128MB
timeout: 50s
%s
"""
BOOTSTRAP = Path(__file__).parents[1] / "lambda_api/image_bootstrap.c"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    archive = tmp_path / "archive"
    with archive.open("wb") as file, LayerWriter(file) as writer:
        writer.add_bytes("file", b"of the root")
    execution = Execution(("/bin/sh",), (), {"ROOT_FILE": "/file"})
    write_image(tmp_path / "root", [Layer(archive)], execution)
    source = tmp_path / "rooted" / "provided"
    source.mkdir(parents=True)
    (source / "bootstrap.c").write_bytes(BOOTSTRAP.read_bytes())
    return tmp_path


@pytest.mark.parametrize("says", ["function", "experiment"])
def test_a_run_deploys_the_function_over_its_root(
    command: Callable[..., tuple[int, str, str]], state_home: Path, folder: Path, says: str
) -> None:
    text = FUNCTION % ("root: {layout: ../root}" if says == "function" else "")
    (folder / "rooted/function.yaml").write_text(text)
    source = "./rooted" if says == "function" else "./rooted, root: ./root"
    path = experiment(folder, source, "{kind: burst, sizes: [2]}")
    code, _, errors = command("run", str(path), "--out", str(folder / "run"))
    assert code == 0, errors
    assert [row["outcome"] for row in rows(folder / "run")] == ["ok", "ok"]
    digest = yaml.safe_load((folder / "run/run.yaml").read_text())["packages"]
    assert list(digest) == ["./rooted (provided)"]
    # Nothing is left of the image but what the cache has.
    assert not [path for path in state_home.rglob("*") if path.name == "layouts"]


def test_roots_are_checked(folder: Path) -> None:
    text = (
        (FUNCTION % "root: {packages: [gcc], layout: ./x}", "either packages or a layout"),
        (FUNCTION % "root: {layout: ./x, suite: sid}", "suite is for packages"),
        (FUNCTION % "root: {}", "either packages or a layout"),
    )
    for content, message in text:
        (folder / "rooted/function.yaml").write_text(content)
        with pytest.raises(UnciaError, match=message):
            load(folder / "rooted")
