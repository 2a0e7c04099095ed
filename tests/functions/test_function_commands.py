"""``uncia functions`` and ``uncia new`` as a person calls them."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from uncia.cli import build
from uncia.cli.new import new_function
from uncia.errors import UnciaError
from uncia.functions import check_answer, list_functions, load
from uncia.settings import RUNTIMES


def _uncia(*arguments: str) -> Result:
    return CliRunner().invoke(build(), list(arguments))


def _error(*arguments: str) -> UnciaError:
    result = _uncia(*arguments)
    assert isinstance(result.exception, UnciaError), result.output
    return result.exception


def test_commands_begin_without_the_forms() -> None:
    program = (
        "import sys, uncia.cli; uncia.cli.build(); print('uncia.functions.form' in sys.modules)"
    )
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert output == "False\n"


def test_list_names_every_function() -> None:
    result = _uncia("functions", "list")
    assert result.exit_code == 0
    assert _uncia("functions").stdout == result.stdout
    for function in list_functions():
        assert function.name in result.output
    plain = json.loads(_uncia("functions", "list", "--json").stdout)
    assert [entry["name"] for entry in plain] == [function.name for function in list_functions()]


@pytest.mark.parametrize("name", [function.name for function in list_functions()])
def test_show_tells_of_parameters_and_answers(name: str) -> None:
    result = _uncia("functions", "show", name)
    assert result.exit_code == 0
    assert "A correct answer" in result.output
    function = load(name)
    for parameter in function.parameters:
        assert parameter in result.output
    plain = json.loads(_uncia("functions", "show", name, "--json").stdout)
    assert set(plain["parameters"]) == set(function.parameters)


def test_package_writes_a_zip(tmp_path: Path, cache: Path) -> None:
    target = tmp_path / "out.zip"
    result = _uncia("functions", "package", "hello", "--out", str(target), "--filler", "1MB")
    assert result.exit_code == 0, result.output
    with zipfile.ZipFile(target) as archive:
        assert archive.getinfo("uncia-filler.bin").file_size == 1 << 20
        assert "handler.py" in archive.namelist()
    assert "handler: handler.handler" in result.output


def test_mistakes_are_sentences(tmp_path: Path, cache: Path) -> None:
    assert "did you mean" in _error("functions", "show", "helo").message
    assert "no runtime" in _error("functions", "package", "pyaes", "--runtime", "node").message
    assert "--filler" in _error("functions", "package", "hello", "--filler", "10").message
    nowhere = str(tmp_path / "no" / "such" / "x.zip")
    assert "cannot be written" in _error("functions", "package", "hello", "--out", nowhere).message


@pytest.mark.parametrize("runtime", ["python", "node", "ruby", "java", "go", "provided"])
def test_a_new_function_runs_as_it_is(runtime: str, tmp_path: Path, call: Any, cache: Path) -> None:
    result = _uncia("new", "function", "mine", "--runtime", runtime, "--into", str(tmp_path))
    assert result.exit_code == 0, result.output
    function = load(tmp_path / "mine")
    assert function.runtime_names == [runtime]
    small, large, wrong, unknown = call(
        function,
        function.preset("test"),
        function.preset("large"),
        {"count": 0},
        {"cuont": 1},
        runtime=runtime,
    )
    for reply in (small, large):
        assert check_answer(function, reply["answer"]) == []
    assert small["answer"]["total"] == 1
    assert large["answer"]["total"] == 500_000_500_000
    assert "count" in wrong["message"]
    assert "cuont" in unknown["message"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_new_function_in_all_runtimes(tmp_path: Path) -> None:
    runtimes = ["provided", "bash", "go", "java", "ruby", "node", "python"]
    arguments = [word for runtime in runtimes for word in ("--runtime", runtime)]
    into = str(tmp_path / "a" / "b")
    assert _uncia("new", "function", "all", *arguments, "--into", into).exit_code == 0
    made = load(tmp_path / "a" / "b" / "all")
    assert made.runtime_names == ["python", "node", "ruby", "java", "go", "provided", "bash"]


def test_the_new_runtime_reads_what_platforms_send_and_tells_of_the_rest(
    tmp_path: Path, call: Any
) -> None:
    made = _uncia("new", "function", "own", "--runtime", "provided", "--into", str(tmp_path))
    assert made.exit_code == 0, made.output
    request = {"headers": {"body": "}"}, "requestContext": {"a": {}}, "rawPath": "/"}
    right = [
        ({}, 1000),
        ({"count": 3}, 3),
        ({**request, "body": json.dumps({"count": 4}, indent=1)}, 4),
        ({**request, "body": None}, 1000),
    ]
    wrong: list[Any] = [
        [],
        None,
        "text",
        {"count": 1.5},
        {"count": "3"},
        {"count": None},
        {"count": 10**30},
        {"count": 3, 'a"b': {"count": 4}},
        {**request, "body": "no JSON"},
        {**request, "body": json.dumps({"cuont": 4})},
    ]
    replies = call(
        tmp_path / "own", *(event for event, _ in right), *wrong, {"count": 5}, runtime="provided"
    )
    for (event, count), reply in zip(right, replies, strict=False):
        assert reply["answer"]["total"] == count * (count + 1) // 2, event
        assert reply["answer"]["parameters"] == {"count": count}
        assert reply["answer"]["uncia"]["valid"] is True
    for event, reply in zip(wrong, replies[len(right) : -1], strict=True):
        assert reply["error"] == "ValueError", event
    assert "cuont" in replies[-2]["message"]
    fresh = [reply["answer"]["uncia"]["fresh"] for reply in (replies[0], replies[1], replies[-1])]
    assert fresh == [True, False, False]


def test_every_runtime_of_the_engine_can_be_begun_with(tmp_path: Path) -> None:
    # What a component is made of is its own toolchain's affair.
    for name in sorted(set(RUNTIMES) - {"wasm"}):
        assert load(new_function(name, [name], tmp_path)).runtime_names == [name]
    assert "(allowed: python, node, ruby, java, go, " in (
        _error("new", "function", "x", "--runtime", "perl", "--into", str(tmp_path)).message
    )


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine.yaml").write_text("precious")
    into = ["--into", str(tmp_path)]
    assert "exists already" in _error("new", "function", "mine", *into).message
    assert "exists already" in _error("new", "tariff", "mine", *into).message
    assert "exists already" in _error("new", "experiment", "mine", *into).message
    assert list((tmp_path / "mine").iterdir()) == []
    assert (tmp_path / "mine.yaml").read_text() == "precious"


@pytest.mark.parametrize("name", ["", "../x", "a b", "-a", "x" * 65, "é"])
@pytest.mark.parametrize("kind", ["function", "tariff", "experiment"])
def test_impossible_names_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    result = _uncia("new", kind, "--into", str(tmp_path), "--", name)
    assert isinstance(result.exception, UnciaError)
    assert "is not a name" in result.exception.message
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_runtime_is_refused(tmp_path: Path) -> None:
    error = _error("new", "function", "a", "--runtime", "cobol", "--into", str(tmp_path))
    assert "cobol" in error.message
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for kind in ("function", "tariff", "experiment"):
        error = _error("new", kind, "a", "--into", str(tmp_path / "file"))
        assert "cannot be written" in error.message


def test_a_new_tariff_is_one(tmp_path: Path) -> None:
    from uncia.tariffs.catalogue import resolve

    assert _uncia("new", "tariff", "my-cloud", "--into", str(tmp_path)).exit_code == 0
    (tariff,) = resolve([str(tmp_path / "my-cloud.yaml")])
    assert tariff.id == "my-cloud"
    assert tariff.unpriced_figures == ()


def test_a_new_experiment_is_one(tmp_path: Path) -> None:
    from uncia.experiment.files import load as load_experiment
    from uncia.experiment.planning import plan
    from uncia.experiment.sources import Sources

    assert _uncia("new", "experiment", "first", "--into", str(tmp_path)).exit_code == 0
    path = tmp_path / "first.yaml"
    file, document = load_experiment(path)
    planned = plan(file, Sources(document, path.parent))
    assert {"warm", "cold", "pyaes-128", "pyaes-1769"} <= {e.name for e in planned.experiments}


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="the embedded platform needs Linux")
def test_a_new_experiment_runs_without_a_warning(tmp_path: Path) -> None:
    assert _uncia("new", "experiment", "first", "--into", str(tmp_path)).exit_code == 0
    words = ["run", str(tmp_path / "first.yaml"), "--out", str(tmp_path / "run"), "--quiet"]
    result = _uncia(*words)
    assert result.exit_code == 0, result.output
    described = yaml.safe_load((tmp_path / "run" / "run.yaml").read_text())
    # What a busy machine does is no matter of the file.
    of_file = [it for it in described.get("warnings", []) if "quota" in it]
    assert not of_file
