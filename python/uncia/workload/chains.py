"""Chains: stages of which each follows others, and who carries them on.

Those of the kind ``client`` are driven by the load generator, which sends a stage's requests when
others are answered.

The stages of a chain are a directed acyclic graph with one first stage: each waits for stages that
come before it in the file. Bodies of later stages may take values from earlier answers; how that is
written is the engine's business (docs/reference/requests.md) and checked here, so that a mistake is
reported with its place in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field

from uncia.forms import Form, Name
from uncia.workload.loops import NO_THOUGHT, Think
from uncia.yamlio import Document, KeyPath

Kind = Literal["client", "nested", "sequence", "asynchronous"]
"""Who carries a chain on: the load generator; functions, which wait for what they invoke; the
platform; functions, which invoke with events and wait for nothing."""

# Braces as the engine reads them (crates/load/src/request/template.rs): two escaped ones, or a
# placeholder, which may not be closed. Of three that open the first is text.
_BRACES: Final = re.compile(
    r"\{\{\{\{|\{\{(?P<brace>\{?)(?P<content>.*?)(?P<close>\}\}|\Z)", re.DOTALL
)
_REFERENCE: Final = re.compile(r"(?:(?P<form>json|text)\s+)?(?P<name>answers?(?:\..*)?)", re.DOTALL)
_ESCAPED: Final = "{{{{"

_MAX_NAMED: Final = 12
"""Stages that a sentence names; of longer chains it has the first three and the last."""

GIVEN: Final = ("invocation", "number")
"""What every template can have between braces."""


class ChainStage(Form):
    """A stage of a chain: a function, and which answers its requests wait for."""

    function: Name = Field(description="One of the file's functions")
    after: Name | list[Name] | None = Field(
        None, description="The stages that it waits for; by default the stage before it"
    )
    after_failures: bool = Field(
        False, description="It is sent as well when stages that it waits for have failed"
    )
    think: Think = Field(NO_THOUGHT, description="From the last of their answers to the request")


@dataclass(frozen=True)
class Reference:
    """An answer, or a value in one, that a template has.

    Attributes:
        stage: whose answer; None: of the only stage that is waited for.
        text: as it stands in the template, with its braces.
        name: what stands between the braces, without the form.
        form: ``json``, ``text`` or none.
    """

    stage: str | None
    text: str
    name: str
    form: str | None


def references(template: str) -> Iterator[Reference]:
    """The references to answers in a template."""
    for match in _BRACES.finditer(template):
        reference = _reference(match)
        if reference is not None:
            yield reference


def names(template: str) -> set[str]:
    """What stands between the braces of a template, of fields and all else."""
    return {match["content"].strip() for match in _BRACES.finditer(template) if match["close"]}


def has_references(value: object) -> bool:
    """Whether any text in a value of YAML has a reference."""
    return any(next(references(text), None) is not None for text in texts(value))


def has_braces(value: object) -> bool:
    """Whether any text in a value of YAML has a reference or escaped braces."""
    return has_references(value) or any(
        match[0] == _ESCAPED for text in texts(value) for match in _BRACES.finditer(text)
    )


def texts(value: object) -> Iterator[str]:
    """All texts in a value of YAML, however deep; keys are none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from texts(item)


def _reference(match: re.Match[str]) -> Reference | None:
    """The reference that braces are, if they are one."""
    if not match["close"]:
        return None
    reference = _REFERENCE.fullmatch(match["content"].strip())
    if reference is None:
        return None
    first, _, rest = reference["name"].partition(".")
    stage = rest.partition(".")[0] if first == "answers" else None
    return Reference(stage, _placeholder(match), reference["name"], reference["form"])


def _placeholder(match: re.Match[str]) -> str:
    """As it stands in the template, without a brace before it that is text."""
    return match[0][len(match["brace"]) :]


def event_template(event: Mapping[str, Any], fields: Mapping[str, bool] | None = None) -> str:
    """An event as the JSON template of a body.

    A text that is a reference and nothing else becomes the value itself, whatever its type; within
    other text a reference becomes text, and four braces become two.

    Args:
        event: the event.
        fields: names of fields that may stand between braces, too, and whether their values are
            JSON without quotes (numbers); a text that is such a field and nothing else becomes the
            number.
    """
    return _template(event, fields or {})


def _template(value: object, fields: Mapping[str, bool]) -> str:
    if isinstance(value, Mapping):
        members = (f"{_quoted(str(key))}: {_template(item, fields)}" for key, item in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_template(item, fields) for item in value) + "]"
    if isinstance(value, str):
        return _text_template(value, fields)
    return json.dumps(value)


def only_name(text: str) -> str | None:
    """What stands between the braces of a text that is nothing else; None: it is something else."""
    match = _BRACES.fullmatch(text.strip())
    if match is None or not match["close"] or match["brace"]:
        return None
    return match["content"].strip()


def _text_template(text: str, fields: Mapping[str, bool]) -> str:
    name = only_name(text)
    if name is not None and fields.get(name):
        return "{{" + name + "}}"
    values = list(references(text))
    if len(values) == 1 and values[0].text == text.strip() and values[0].form != "text":
        return "{{json " + values[0].name + "}}"
    parts = []
    end = 0
    for match in _BRACES.finditer(text):
        parts.append(_literal(text[end : match.start()]))
        end = match.end()
        reference = _reference(match)
        if reference is not None:
            parts.append(match["brace"] + "{{text " + reference.name + "}}")
        elif match["close"] and match["content"].strip() in fields:
            parts.append(match[0])
        else:
            parts.append(_ESCAPED if match[0] == _ESCAPED else _literal(match[0]))
    return '"' + "".join([*parts, _literal(text[end:])]) + '"'


def _quoted(text: str) -> str:
    return f'"{_literal(text)}"'


def _literal(text: str) -> str:
    """Text within the quotes of JSON, in which braces stand for themselves."""
    return json.dumps(text)[1:-1].replace("{{", _ESCAPED)


def predecessors(stages: Mapping[str, ChainStage]) -> dict[str, list[str]]:
    """Of each stage those that it waits for; none of the first."""
    result: dict[str, list[str]] = {}
    before: str | None = None
    for name, stage in stages.items():
        if stage.after is not None:
            result[name] = [stage.after] if isinstance(stage.after, str) else list(stage.after)
        else:
            result[name] = [] if before is None else [before]
        before = name
    return result


def check(
    document: Document, at: KeyPath, stages: Mapping[str, ChainStage], functions: Sequence[str]
) -> None:
    """That the stages are a graph without circles, and of functions that exist.

    Args:
        document: the file, for errors that say where.
        at: the stages in it.
        stages: by name, in the order of the file.
        functions: the file's.

    Raises:
        UnciaError: with file, line and key.
    """
    seen: list[str] = []
    for name, stage in stages.items():
        here: KeyPath = (*at, name)
        if stage.function not in functions:
            raise document.error(
                (*here, "function"), f"there is no function {stage.function!r}", tuple(functions)
            )
        if not seen and stage.after is not None:
            raise document.error(
                (*here, "after"),
                "the first stage begins the chain and waits for none",
            )
        if not seen and stage.after_failures:
            raise document.error(
                (*here, "after_failures"), "the first stage begins the chain and waits for none"
            )
        if not seen and stage.think.max:
            raise document.error((*here, "think"), "there is no answer before the first stage")
        after = [stage.after] if isinstance(stage.after, str) else stage.after
        if after is not None and not after:
            raise document.error(
                (*here, "after"), "a chain has one first stage; name those that this one waits for"
            )
        for other in after or []:
            if other not in seen:
                message = f"there is no stage {other!r} before {name!r}"
                if other == name:
                    message = "a stage cannot wait for itself"
                elif other in stages:
                    message = f"{other!r} comes after {name!r} in the file"
                    is_circle = name in _before(predecessors(stages), other)
                    message += ", and waits for it: a circle" if is_circle else ": put it before"
                raise document.error((*here, "after"), message, tuple(seen))
        if after is not None and len(set(after)) < len(after):
            raise document.error((*here, "after"), "it waits for a stage twice")
        seen.append(name)


def check_template(
    document: Document,
    at: KeyPath,
    stages: Mapping[str, ChainStage],
    name: str,
    template: str,
    known: Sequence[str] | None = None,
    waits: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """That a stage's template refers to stages before it.

    Args:
        document: the file, for errors that say where.
        at: the template in it.
        stages: by name, in the order of the file.
        name: the stage.
        template: its template.
        known: what else may stand between braces; None: whatever it is, it is checked elsewhere.
        waits: the `predecessors` of the stages, where they are known.

    Raises:
        UnciaError: with file, line and key.
    """
    if known is not None:
        _check_braces(document, at, template, known)
    for reference in references(template):
        waits = predecessors(stages) if waits is None else waits
        if not waits[name]:
            raise document.error(at, f"{reference.text}: no stage comes before {name!r}")
        if reference.stage is None and len(waits[name]) > 1:
            raise document.error(
                at,
                f"{reference.text}: {name!r} waits for several stages; say answers.STAGE",
                tuple(waits[name]),
            )
        if reference.stage is not None:
            before = _before(waits, name)
            if reference.stage not in before:
                raise document.error(
                    at,
                    f"{reference.text}: {name!r} does not come after such a stage",
                    tuple(before),
                )
        if "" in reference.name.split("."):
            raise document.error(at, f"{reference.text}: a key is empty")


def check_without_answers(
    document: Document, at: KeyPath, template: str, known: Sequence[str] = GIVEN
) -> None:
    """That a template of requests that follow no others has no references.

    Args:
        document: the file, for errors that say where.
        at: the template in it.
        template: the template.
        known: what may stand between braces.

    Raises:
        UnciaError: with file, line and key.
    """
    for reference in references(template):
        raise document.error(at, f"{reference.text}: only stages of chains follow answers")
    _check_braces(document, at, template, known)


def _check_braces(document: Document, at: KeyPath, template: str, known: Sequence[str]) -> None:
    """That all braces are references, of ``known``, or escaped."""
    for match in _BRACES.finditer(template):
        if match[0] == _ESCAPED or _reference(match) is not None:
            continue
        text = _placeholder(match)
        if not match["close"]:
            raise document.error(
                at, f"{text[:20]!r}: nothing closes the braces; write {_ESCAPED} for two braces"
            )
        if match["content"].strip() not in known:
            raise document.error(
                at,
                f"{text} is no reference to an answer; write {_ESCAPED} for two braces",
                ("answer", "answer.KEY", "answers.STAGE", "answers.STAGE.KEY", *known),
            )


def _before(waits: Mapping[str, Sequence[str]], name: str) -> list[str]:
    """All stages before one, in the order of the file."""
    seen: set[str] = set()
    left = list(waits[name])
    while left:
        stage = left.pop()
        if stage not in seen:
            seen.add(stage)
            left += waits.get(stage, ())
    return [stage for stage in waits if stage in seen]


def sentence(stages: Mapping[str, ChainStage]) -> str:
    """The stages in a few words: ``fetch > small > large (after fetch)``; of many only the ends."""
    waits = predecessors(stages)
    parts = []
    before: str | None = None
    for name in stages:
        usual = waits[name] in ([], [before])
        parts.append(name if usual else f"{name} (after {' and '.join(waits[name])})")
        before = name
    if len(parts) > _MAX_NAMED:
        parts[3:-1] = [f"... {len(parts) - 4:,} more ..."]
    return " > ".join(parts)
