"""The microbenchmarks: what a request is, and that wrong answers are seen, first and later ones."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from uncia.functions import package

SCRIPT = """
import importlib, json, sys
sys.path.insert(0, ".")
import handler

def valid(benchmark, repeat=1):
    return handler.handler({"benchmark": benchmark, "repeat": repeat}, None)["uncia"]["valid"]

results = {}
for name in ("nqueens", "json_loads", "float", "pickle", "chaos"):
    member = importlib.import_module(f"members.{name}")
    checked, check = [], member.check
    def counting(*arguments, check=check, checked=checked):
        checked.append(True)
        return check(*arguments)
    member.check = counting
    results[name] = [valid(name), valid(name, 2), valid(name), len(checked)]

queens = handler.load("nqueens")
right, queens.n_queens = queens.n_queens, lambda n: [1] * 91
results["wrong"] = valid("nqueens")
queens.n_queens = right
results["right again"] = valid("nqueens")

chaos = importlib.import_module("members.chaos")
game = handler._PREPARED["chaos"]
(image,) = handler._CHECKED["chaos"]
half = len(image) // 2
results["moved"] = chaos.check(None, game, {image[half:] + image[:half]})
results["part"] = chaos.check(None, game, {image[:half] + b"\\1" * half})
print(json.dumps(results))
"""


def test_an_instance_prepares_and_checks_once_and_sees_later_answers_that_differ(
    tmp_path: Path,
) -> None:
    with zipfile.ZipFile(package("micro").path) as archive:
        archive.extractall(tmp_path)
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    results: dict[str, Any] = json.loads(done.stdout)
    for name in ("nqueens", "json_loads", "float", "pickle", "chaos"):
        assert results[name] == [True, True, True, 1], name
    assert results["wrong"] is False
    assert results["right again"] is True
    assert results["moved"] is False
    assert results["part"] is False


def test_files_that_a_benchmark_prepares_go_with_its_instance(tmp_path: Path) -> None:
    with zipfile.ZipFile(package("micro").path) as archive:
        archive.extractall(tmp_path / "code")
    (tmp_path / "tmp").mkdir()
    code = "import handler; print(handler.handler({'benchmark': 'pathlib'})['uncia']['valid'])"
    command = [sys.executable, "-c", code]
    environment = {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": "."}
    done = subprocess.run(
        command, cwd=tmp_path / "code", env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
    assert list((tmp_path / "tmp").iterdir()) == []
