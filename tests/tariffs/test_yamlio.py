"""Reading YAML forms: the core schema, line numbers, and what each mistake is told as."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import BaseModel, ConfigDict, Field

from uncia.errors import UnciaError
from uncia.yamlio import MAX_NODES, document, load, validate


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Constant(Form):
    kind: Literal["constant"]
    rate: int


class Burst(Form):
    kind: Literal["burst"]
    sizes: list[int]


class Step(Form):
    name: str
    arrivals: Annotated[Constant | Burst, Field(discriminator="kind")]
    mode: Literal["fast", "slow"] = "fast"
    size: int | list[int] = 1


class Plan(Form):
    steps: list[Step]
    named: dict[str, Step] = Field(default_factory=dict)


def error_message(text: str) -> str:
    with pytest.raises(UnciaError) as caught:
        validate(Plan, load(text, "plan.yaml"))
    assert caught.value.exit_code == 2
    return caught.value.message


GOOD = """\
# a comment
steps:
  - name: one
    arrivals: {kind: constant, rate: 3}
  - name: two
    arrivals:
      kind: burst
      sizes: [1, 10]
"""


def test_a_good_document_becomes_a_model() -> None:
    plan = validate(Plan, load(GOOD))
    assert isinstance(plan.steps[1].arrivals, Burst)
    assert plan.steps[1].arrivals.sizes == [1, 10]


def test_lines_are_those_of_the_keys() -> None:
    document = load(GOOD)
    assert document.line(("steps",)) == 2
    assert document.line(("steps", 1, "arrivals", "sizes")) == 8
    assert document.line(("steps", 1, "arrivals", "unheard of")) == 6
    assert document.line(("elsewhere",)) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2025-05-15", "2025-05-15"),
        ("true", True),
        ("1e-5", 1e-5),
        ("012", 12),
        ("0x10", 16),
        ("0o10", 8),
        ("~", None),
        ('"5"', "5"),
        ("-3", -3),
        (".5", 0.5),
        ("1_000", "1_000"),
    ],
)
def test_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: object) -> None:
    data = load(f"a: {text}").data
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "steps:\n- name: x\n  arrivals: {kind: constant, rate: 1}\n  mod: slow\n",
            "plan.yaml:4: steps[0].mod: unknown key, did you mean mode?"
            " (allowed: name, arrivals, mode, size)",
        ),
        (
            "steps:\n- name: x\n  arrivals: {kind: constant, rate: 1}\n  mode: slwo\n",
            "plan.yaml:4: steps[0].mode: 'slwo' is not known, did you mean slow?"
            " (allowed: fast, slow)",
        ),
        (
            "steps:\n- name: x\n  arrivals:\n    kind: brst\n",
            "plan.yaml:4: steps[0].arrivals.kind: 'brst' is not known, did you mean burst?"
            " (allowed: constant, burst)",
        ),
        (
            "steps:\n- name: x\n  arrivals: {}\n",
            "plan.yaml:3: steps[0].arrivals.kind: the key kind is missing"
            " (allowed: constant, burst)",
        ),
        (
            "steps:\n- name: x\n  arrivals:\n    kind: burst\n    size: [1]\n    sizes: [1, x]\n",
            "plan.yaml:5: steps[0].arrivals.size: unknown key, did you mean sizes?"
            " (allowed: kind, sizes)\n"
            "plan.yaml:6: steps[0].arrivals.sizes[1]: must be a valid integer, not 'x'",
        ),
        ("steps:\n- 3\n", "plan.yaml:2: steps[0]: must be a mapping, not 3"),
        ("- 1\n", "plan.yaml:1: must be a mapping, not a list"),
        (
            "steps: []\nnamed:\n  a: {name: n, arrivals: {kind: constant, rate: 1.5}}\n",
            "plan.yaml:3: named.a.arrivals.rate: must be a valid integer, not 1.5",
        ),
        ("{}", "plan.yaml:1: steps: the key steps is missing"),
        ("", "plan.yaml: the file is empty"),
        ("# nothing\n", "plan.yaml: the file is empty"),
        ("steps: []\nsteps: []\n", "plan.yaml:2: steps: this key is already on line 1"),
        ("? [a]\n: 1\n", "plan.yaml:1: a key must be text, not a list or a mapping"),
        ("1: 2\n", 'plan.yaml:1: the key 1 must be text; put it in quotes: "1"'),
        ("a: 1\n---\nb: 1\n", "plan.yaml:3: a second document begins here"),
        ("<<: {a: 1}\n", "plan.yaml:1: merge keys (<<) are not supported; write the keys out"),
        ("\n\na: [1, 2\n", "plan.yaml:4: this is not valid YAML"),
        ("a: b: c\n", "plan.yaml:1: this is not valid YAML: mapping values are not allowed here"),
        ("a: !!python/object/apply:os.system [x]\n", "is not allowed here; only plain data is"),
        ("a: !!binary aGk=\n", "plan.yaml:1: the tag tag:yaml.org,2002:binary is not allowed"),
        ("x: &a [*a]\n", "nested deeper than 64 levels"),
        ("[" * 5000, "nested deeper than 64 levels"),
        ("a: " + "9" * 5000, "is not a whole number"),
        ("a: \x00", "plan.yaml: this is not a text file (it holds a NUL byte)"),
    ],
)
def test_each_mistake_is_told_with_its_line_and_key(text: str, message: str) -> None:
    assert message in error_message(text)


def test_the_members_of_a_plain_union_are_told_once() -> None:
    text = "steps:\n- name: x\n  arrivals: {kind: constant, rate: 1}\n  size: abc\n"
    assert error_message(text) == (
        "plan.yaml:4: steps[0].size: must be a valid integer, not 'abc',"
        " or must be a list, not 'abc': write [\"abc\"]"
    )


def test_tabs_are_told_to_be_spaces() -> None:
    with pytest.raises(UnciaError) as caught:
        load("a:\n\tb: 1\n", "plan.yaml")
    assert "plan.yaml:2" in caught.value.message
    assert "spaces" in (caught.value.hint or "")


def test_an_alias_bomb_ends_in_an_error() -> None:
    text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    for level in range(1, 10):
        inner = ", ".join([f"*a{level - 1}"] * 10)
        text += f"a{level}: &a{level} [{inner}]\n"
    assert f"more than {MAX_NODES} values" in error_message(text)


def test_files_that_cannot_be_read_are_told_by_name(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path / "none.yaml", "there is no such file"),
        (tmp_path, "this is a folder, not a file"),
    ):
        with pytest.raises(UnciaError, match=reason):
            load(path)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: caf\xe9\n")
    with pytest.raises(UnciaError, match="not UTF-8"):
        load(latin)
    marked = tmp_path / "bom.yaml"
    marked.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load(marked).data == {"a": 1}


def test_an_error_made_by_a_reader_has_the_same_form() -> None:
    error = load(GOOD, "plan.yaml").error(("steps", 1, "name"), "is taken", ["one", "three"])
    assert str(error) == "plan.yaml:5: steps[1].name: is taken (allowed: one, three)"


@pytest.mark.parametrize("character", ["\x01", "\x1b", "\x7f", "\x9f", "\ufffe"])
def test_a_control_character_is_told_with_its_line(character: str) -> None:
    with pytest.raises(UnciaError) as error:
        load(f"a: 1\nb: x{character}y\n", "form.yaml")
    message = f"form.yaml:2: this is not valid YAML: the control character U+{ord(character):04X}"
    assert error.value.message.startswith(message)


def outcome(text: str) -> object:
    """What comes of a text: its data and lines, or an error."""
    try:
        parsed = document._parse("plan.yaml", text, None)
    except UnciaError as error:
        return error.message
    return repr(parsed.data), parsed._lines


PIECES = st.sampled_from(
    [*GOOD, *"\t\r\u2028\x85\ufeff?!&*|>%@`<~\\'\"", "- ", "? ", "---\n", "...\n", "|2\n", ">-#"]
)


@given(st.integers(0, len(GOOD)), st.integers(0, 4), st.lists(PIECES, max_size=6).map("".join))
def test_a_text_means_the_same_without_libyaml(at: int, removed: int, put: str) -> None:
    text = GOOD[:at] + put + GOOD[at + removed :]
    fast = outcome(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "_LOADERS", document._LOADERS[-1:])
        assert outcome(text) == fast


@pytest.mark.parametrize("text", ["a\n---", "|2\n---", "a: 1\n---\nb: 2\n", "a: 1\na: 2\n"])
def test_mistakes_are_told_alike_by_either_parser(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = outcome(text)
    monkeypatch.setattr(document, "_LOADERS", document._LOADERS[-1:])
    assert outcome(text) == fast


def test_deep_nesting_is_told_by_either_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = [depth * "[" for depth in (65, 900)] + [50_000 * "- "]
    fast = [outcome(text) for text in deep]
    monkeypatch.setattr(document, "_LOADERS", document._LOADERS[-1:])
    assert [outcome(text) for text in deep] == fast
    assert all(isinstance(message, str) for message in fast)
