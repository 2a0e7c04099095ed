"""``function.yaml``: what is refused, with file and line; and parameters."""

import contextlib
import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncia.errors import UnciaError
from uncia.functions import (
    Function,
    Parameter,
    check_answer,
    form,
    json_schema,
    list_functions,
    load,
    validate_params,
)
from uncia.functions.handlers import check_handler
from uncia.settings import RUNTIMES, Runtime


def test_a_runtime_that_the_engine_gets_is_a_key_with_a_handler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        form, "RUNTIMES", {**RUNTIMES, "perl": Runtime("perl", "perl", None, ("fresh",), ())}
    )
    runtimes = form._make_runtimes().model_validate({"perl": {"handler": "main.handler"}})
    assert runtimes.names == ["perl"]
    with pytest.raises(UnciaError, match="is missing"):
        check_handler("perl", "main.handler", tmp_path)
    (tmp_path / "main.pl").write_text("sub handler {}\n")
    check_handler("perl", "main.handler", tmp_path)


@pytest.mark.parametrize(
    ("runtime", "file"), [("python", "server.py"), ("node", "server.mjs"), ("node", "server.js")]
)
def test_the_handler_of_an_http_server_is_its_file(runtime: str, file: str, tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match=f"handler {file} is missing"):
        check_handler(runtime, file, tmp_path)
    (tmp_path / file).write_text("serve()\n")
    check_handler(runtime, file, tmp_path)
    if runtime == "python":
        (tmp_path / file).write_text("serve(\n")
        with pytest.raises(UnciaError, match=r"server.py:1: this is not valid Python"):
            check_handler(runtime, file, tmp_path)


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        ("main.handler", "def handler(event:, context:) = 1\n"),
        ("main.A::B.handler", "class A::B\n  def self.handler(event:, context:) = 1\nend\n"),
        ("deep/main.handler", "require_relative 'other'\n"),
    ],
)
def test_handlers_in_ruby(handler: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match=r"there is no file .*main\.rb"):
        check_handler("ruby", handler, tmp_path)
    path = tmp_path / f"{handler.split('.')[0]}.rb"
    path.parent.mkdir(exist_ok=True)
    path.write_text("def other = 1\n")
    with pytest.raises(UnciaError, match="defines no method handler"):
        check_handler("ruby", handler, tmp_path)
    path.write_text(text)
    check_handler("ruby", handler, tmp_path)
    assert form.RubyRuntime(handler=handler).handler == handler
    with pytest.raises(ValueError, match="is not a handler"):
        form.RubyRuntime(handler=handler.replace(".", ""))


@pytest.mark.parametrize(
    ("runtime", "listed", "text", "words"),
    [
        (
            "node",
            ("package.json", '{"dependencies": {"left-pad": "1", "@a/b": "1"}}'),
            "import pad from 'left-pad';\nexport const handler = () => pad;\n",
            "loads left-pad, which is not in",
        ),
        (
            "node",
            ("package.json", '{"dependencies": {"@a/b": "1"}}'),
            "const c = require('@a/b/c');\nexports.handler = () => c;\n",
            "loads @a/b, which is not in",
        ),
        (
            "ruby",
            ("Gemfile", "source 'https://any'\n# gem 'no'\ngem 'rack', '~> 3'\n"),
            "def handler(event:, context:) = 1\n",
            "requires rack, and there is no folder",
        ),
    ],
)
def test_what_a_function_requires_is_there(
    runtime: str, listed: tuple[str, str], text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / {"node": "main.mjs", "ruby": "main.rb"}[runtime]).write_text(text)
    check_handler(runtime, "main.handler", tmp_path)
    name, content = listed
    (tmp_path / name).write_text(content)
    with pytest.raises(UnciaError, match=words) as refused:
        check_handler(runtime, "main.handler", tmp_path)
    assert f"cd {tmp_path} && " in (refused.value.hint or "")
    for folder in ("node_modules/left-pad", "node_modules/@a/b", "vendor/bundle"):
        (tmp_path / folder).mkdir(parents=True)
    check_handler(runtime, "main.handler", tmp_path)


def _line_of(folder: Path, text: str) -> int:
    lines = (folder / "function.yaml").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_folder_loads(mine: Path) -> None:
    function = load(mine)
    assert function.name == "mine"
    assert function.folder == mine.resolve()
    assert function.memory == 128 << 20
    assert function.timeout == 3_000_000_000
    assert function.preset("large") == {"count": 10, "pause": 1000}
    assert load(str(mine)) == function


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        ("memory: 128MB", "memroy: 128MB", "memroy", "unknown key, did you mean memory?"),
        ("memory: 128MB", "memory: 128", "memory", "no unit"),
        ("memory: 128MB", "memory: 0MB", "memory", "must be more than 0, not 0MB"),
        ("timeout: 3s", "timeout: 3 parsecs", "timeout", "not a duration"),
        ("name: mine", "name: m/ine", "name", "not a name"),
        (
            "handler: handler.handler",
            "handler: handler",
            "runtimes.python.handler",
            "module.function",
        ),
        ("    handler: handler.handler", "    handler: h.h\n    pip: [x]", "pip", "unknown key"),
        (
            "    handler: handler.handler",
            "    handler: h.h\n    requirements: [pillow==1]",
            "runtimes.python.requirements[0]",
            "requirements.txt",
        ),
        ("  python:\n", "  perl:\n", "perl", "unknown key"),
        ("type: integer", "type: complex", "parameters.count.type", "integer"),
        ("default: 3", "default: 30", "parameters.count", "above 10"),
        ("default: 3", "default: 2.5", "parameters.count", "not a whole number"),
        ("default: 3", 'default: "3"', "parameters.count", "not a number"),
        ("default: 3", "default: true", "parameters.count", "not a number"),
        ("default: 1ms", "default: 1", "parameters.pause", "no unit"),
        ("default: 1ms", "default: 1MB", "parameters.pause", "not a duration"),
        ("min: 0ms", "min: 3s", "parameters.pause", "above max"),
        ("unit: ms", "unit: fortnight", "parameters.pause.unit", "not known"),
        ("test: {count: 1}", "test: {conut: 1}", "sizes.test.conut", "no such parameter"),
        ("test: {count: 1}", "test: {count: 11}", "sizes.test.count", "above 10"),
        ("  test: {count: 1}\n", "", "sizes.test", "missing"),
    ],
)
def test_mistakes_are_told_with_file_line_and_key(
    old: str, new: str, key: str, message: str, mine: Path
) -> None:
    path = mine / "function.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(UnciaError) as caught:
        load(mine)
    assert caught.value.exit_code == 2
    sentences = [line for line in caught.value.message.splitlines() if message in line]
    assert len(sentences) == 1, caught.value.message
    match = re.fullmatch(rf"{re.escape(str(path))}:(\d+): (.*)", sentences[0])
    assert match is not None
    assert key in match.group(2)
    named = key.rpartition(".")[2].partition("[")[0]
    if message != "missing":
        assert named in path.read_text().splitlines()[int(match.group(1)) - 1]


def test_a_missing_runtime_folder_is_told(mine: Path) -> None:
    (mine / "python").rename(mine / "pyhton")
    with pytest.raises(
        UnciaError, match=rf"function.yaml:{_line_of(mine, '  python:')}: .*no folder"
    ):
        load(mine)


@pytest.mark.parametrize(
    "text", ["", "[1, 2]", "a: b: c", "name: mine", "\0", "name: mine\nname: x"]
)
def test_broken_yaml_is_a_sentence(text: str, mine: Path) -> None:
    (mine / "function.yaml").write_text(text)
    with pytest.raises(UnciaError, match=r"function\.yaml"):
        load(mine)


def test_unknown_names_are_told_with_what_there_is(mine: Path) -> None:
    with pytest.raises(UnciaError, match="did you mean pyaes") as caught:
        load("pyeas")
    assert caught.value.hint is not None
    assert "hello" in caught.value.hint
    with pytest.raises(UnciaError, match="no folder"):
        load(str(mine / "nowhere"))
    (mine / "empty").mkdir()
    with pytest.raises(UnciaError, match=r"no function: it has no function\.yaml"):
        load(mine / "empty")
    for strange in ("", "_shared", "hello\n", "HELLO"):
        with pytest.raises(UnciaError, match="no function"):
            load(strange)


def test_a_folder_here_must_be_written_as_a_path(
    mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(mine.parent)
    with pytest.raises(UnciaError) as caught:
        load("mine")
    assert caught.value.hint is not None
    assert "./mine" in caught.value.hint
    assert load("./mine").name == "mine"


def test_the_catalogue_is_sorted_and_its_parameters_explained() -> None:
    functions = list_functions()
    assert [f.name for f in functions] == sorted(f.name for f in functions)
    for function in functions:
        assert function.description.endswith(".")
        for parameter in function.parameters.values():
            assert parameter.description.endswith(".")


def test_parameters_are_checked_against_the_function(mine: Path) -> None:
    function = load(mine)
    assert validate_params(function, {}) == {"count": 3, "pause": 1}
    assert validate_params(function, {"count": 10, "pause": "1.5s"}) == {"count": 10, "pause": 1500}
    for bad, item in (
        ({"cuont": 1}, r"no parameter 'cuont' \(allowed: count, pause\)"),
        ({"count": 11}, "above 10"),
        ({"count": -1}, "below 0"),
        ({"count": "3"}, "not a number"),
        ({"count": 2.5}, "whole"),
        ({"count": None}, "not a number"),
        ({"count": True}, "not a number"),
        ({"pause": 3}, "no unit"),
        ({"pause": "3s"}, "above 2s"),
        ({"pause": "-1ms"}, "not a duration"),
        ({"pause": "1MB"}, "not a duration"),
    ):
        with pytest.raises(UnciaError, match=item):
            validate_params(function, bad)


@given(value=st.integers(0, 10**9), unit=st.sampled_from(["ns", "us", "ms", "s"]))
def test_durations_come_out_exactly_in_the_parameters_unit(value: int, unit: str) -> None:
    ns = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}
    parameter = Parameter(description="d", type="number", unit="ms", default="0ms")
    exact = Fraction(value * ns[unit], ns["ms"])
    result = parameter.value(f"{value}{unit}")
    assert result == (exact.numerator if exact.denominator == 1 else float(exact))
    assert isinstance(result, int) == (exact.denominator == 1)


@given(value=st.integers(-50, 150), low=st.integers(-20, 20), span=st.integers(0, 50))
def test_a_value_is_taken_exactly_when_it_is_in_range(value: int, low: int, span: int) -> None:
    high = low + span
    parameter = Parameter(description="d", type="integer", default=low, min=low, max=high)
    if low <= value <= high:
        assert parameter.value(value) == value
    else:
        with pytest.raises(ValueError, match=r"(least|most) allowed"):
            parameter.value(value)


@given(st.one_of(st.none(), st.booleans(), st.text(), st.lists(st.integers()), st.floats()))
def test_whatever_is_given_a_whole_number_or_a_sentence_comes_out(given: object) -> None:
    parameter = Parameter(description="d", type="integer", unit="KB", default="1KB", max="1GB")
    with contextlib.suppress(ValueError):
        result = parameter.value(given)
        assert isinstance(result, int)
        assert isinstance(given, str)
        assert Decimal(result) >= 0


def test_other_types_of_parameters() -> None:
    text = Parameter(description="d", type="text", default="a", choices=["a", "b"])
    assert text.value("b") == "b"
    for bad in ("c", 1, None):
        with pytest.raises(ValueError, match="not"):
            text.value(bad)
    switch = Parameter(description="d", type="boolean", default=False)
    assert switch.value(True) is True
    for bad in (1, "true", None):
        with pytest.raises(ValueError, match="true or false"):
            switch.value(bad)
    number = Parameter(description="d", type="number", default=0.5)
    assert number.value(2.0) == 2
    for infinite in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match="finite"):
            number.value(infinite)
    with pytest.raises(ValueError, match="choices are for text"):
        Parameter(description="d", type="number", default=1, choices=["a"])
    with pytest.raises(ValueError, match="are for numbers"):
        Parameter(description="d", type="text", default="a", unit="ms")


def test_answers_are_checked() -> None:
    hello = load("hello")
    envelope = {
        "fresh": True,
        "instance": "a",
        "handler_start_ns": 1,
        "handler_end_ns": 2,
        "cpu_ns": 0,
        "valid": True,
    }
    assert check_answer(hello, {"message": "hello", "uncia": envelope}) == []
    assert check_answer(hello, "hello") == ["the answer is not a JSON object but str"]
    assert check_answer(hello, {"message": "hullo", "uncia": envelope}) == [
        "message is 'hullo', not 'hello'"
    ]
    assert check_answer(hello, {"message": "hello"}) == ["the key uncia is missing"]
    assert (
        "valid is false"
        in check_answer(hello, {"message": "hello", "uncia": {**envelope, "valid": False}})[0]
    )
    for key, wrong in (("fresh", 1), ("cpu_ns", True), ("instance", None), ("valid", "yes")):
        assert check_answer(hello, {"message": "hello", "uncia": {**envelope, key: wrong}})
    assert check_answer(load("spin"), {"uncia": envelope}) == [
        "the key cpu_ns is missing",
        "the key wall_ns is missing",
    ]


def test_the_json_schema_names_every_key() -> None:
    schema = json_schema()
    assert set(schema["properties"]) == set(Function.model_fields)
    assert schema["additionalProperties"] is False
