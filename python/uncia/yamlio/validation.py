"""Plain data to pydantic models; each mistake is a sentence with file, line and key."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from uncia.errors import UnciaError
from uncia.text import did_you_mean
from uncia.units import UnitError, format_like
from uncia.yamlio.document import Document, KeyPath, shorten

# Pydantic's errors on bounds: in words, and the bound's name in their context.
_BOUNDS: Final = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}

Model = TypeVar("Model", bound=BaseModel)


def validate(model_cls: type[Model], document: Document) -> Model:
    """Check a document against a pydantic model.

    Raises:
        UnciaError: one sentence per mistake, ``file:line: key: message (allowed: ...)``, in the
            order of the lines, with the nearest allowed word for a misspelt one.
    """
    if document.data is None:
        raise UnciaError(f"{document.name}: the file is empty")
    # Each member of a plain union fails on the same key: one sentence, joined by "or".
    mistakes: dict[KeyPath, tuple[list[str], list[str]]] = {}
    try:
        return model_cls.model_validate(document.data)
    except ValidationError as error:
        for detail in error.errors():
            path, message, words = _explain(model_cls, document, detail)
            messages, allowed = mistakes.setdefault(path, ([], []))
            messages.append(message)
            allowed += words
    sentences = [
        document.sentence(path, ", or ".join(dict.fromkeys(messages)), list(dict.fromkeys(allowed)))
        for path, (messages, allowed) in sorted(
            mistakes.items(), key=lambda item: document.line(item[0])
        )
    ]
    raise UnciaError("\n".join(sentences))


def _explain(
    model_cls: type[BaseModel], document: Document, detail: ErrorDetails
) -> tuple[KeyPath, str, tuple[str, ...]]:
    """One pydantic error as (path in the document, message, allowed words)."""
    kind = detail["type"]
    context: Mapping[str, Any] = detail.get("ctx", {})
    # A validator of a whole may know in which part the mistake is: `uncia.forms.MistakeAt`.
    location = (*detail["loc"], *getattr(context.get("error"), "below", ()))
    missing = kind in ("missing", "union_tag_not_found")
    walk = location[:-1] if kind in ("missing", "extra_forbidden") else location
    path, candidates = _descend(model_cls, document.data, walk)
    last = location[-1] if location else ""
    if kind == "missing":
        return (*path, last), f"the key {last} is missing", ()
    if kind == "extra_forbidden":
        known = tuple(_keys(candidates))
        # Of a `uncia.forms.Form`; other models know no more than their keys.
        explain = [getattr(kind, "explain_unknown", lambda key: None) for kind in candidates]
        reason = next(filter(None, (form(str(last)) for form in explain)), None)
        tail = did_you_mean(str(last), known) if reason is None else f": {reason}"
        return (*path, last), f"unknown key{tail}", known
    if missing or kind == "union_tag_invalid":
        key = str(context.get("discriminator", "")).strip("'")
        tags = tuple(_tags(candidates, key))
        if missing:
            return (*path, key), f"the key {key} is missing", tags
        tag = str(context.get("tag", ""))
        return (*path, key), f"{tag!r} is not known{did_you_mean(tag, tags)}", tags
    value = detail.get("input")
    if kind in ("literal_error", "enum"):
        words = tuple(_quoted(str(context.get("expected", ""))))
        return path, f"{_show(value)} is not known{did_you_mean(str(value), words)}", words
    if kind in ("bool_parsing", "bool_type"):
        words = ("true", "false")
        return path, f"{_show(value)} is not known{did_you_mean(str(value), words)}", words
    if kind == "too_short":
        return path, f"needs at least {context['min_length']}, not {context['actual_length']}", ()
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind == "list_type":
        example = f": write [{json.dumps(value)}]" if isinstance(value, str) else ""
        return path, f"must be a list, not {_show(value)}{example}", ()
    if kind in _BOUNDS:
        sentence = _beyond_bound(document, path, *_BOUNDS[kind], context)
        if sentence is not None:
            return path, sentence, ()
    message = re.sub(r"be a valid dictionary( or instance of \w+)?", "be a mapping", message)
    subject, should, rest = message.partition(" should ")
    if should and " " not in subject:  # "Input should be ...", "String should match ..."
        message = f"must {rest}, not {_show(value)}"
    return path, message, ()


def _beyond_bound(
    document: Document, path: KeyPath, words: str, key: str, context: Mapping[str, Any]
) -> str | None:
    """Say which bound a quantity exceeds, in its own unit; None if it was written without one."""
    written = document.data
    for part in path:
        written = written[part]
    if not isinstance(written, str) or not isinstance(context[key], int):
        return None
    try:
        bound = format_like(written, context[key]) if context[key] else "0"
        return f"must be {words} {bound}, not {written}"
    except UnitError:
        return None


def _descend(
    model_cls: type[BaseModel], data: Any, location: Sequence[str | int]
) -> tuple[KeyPath, list[Any]]:
    """Follow a pydantic location through the data and the types at once.

    Between the keys, Pydantic puts names of union members and validators, which are not in the data
    and only narrow the types.

    Returns:
        The path in the data, and the types that its value may have.
    """
    path: list[str | int] = []
    value = data
    candidates: list[Any] = list(_members(model_cls))
    for part in location:
        narrowed = [kind for kind in candidates if _is_named(kind, part, candidates)]
        if narrowed and sum(map(_is_model, candidates)) > 1:
            # A member's name, even where that member has a key of the same name.
            candidates = narrowed
            continue
        is_key = isinstance(value, dict) and part in value
        is_position = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if is_key or is_position:
            candidates = [kind for member in candidates for kind in _below(member, part)]
            value = value[part]
            path.append(part)
    return tuple(path), candidates


def _members(kind: Any) -> Iterator[Any]:
    """The types that a type stands for: unions opened, Annotated and aliases unwrapped."""
    origin = typing.get_origin(kind)
    if isinstance(kind, typing.TypeAliasType if hasattr(typing, "TypeAliasType") else ()):
        yield from _members(kind.__value__)
    elif origin is typing.Annotated:
        yield from _members(typing.get_args(kind)[0])
    elif origin in (typing.Union, types.UnionType):
        for member in typing.get_args(kind):
            yield from _members(member)
    else:
        yield kind


def _below(kind: Any, key: str | int) -> Iterator[Any]:
    """The types that the value at `key` may have, in a value of the given type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if key in (field.alias, name):
                yield from _members(field.annotation)
    elif origin in (dict, Mapping) and len(arguments) == 2:
        yield from _members(arguments[1])
    elif origin is tuple and Ellipsis not in arguments:
        if isinstance(key, int) and key < len(arguments):
            yield from _members(arguments[key])
    elif arguments and isinstance(key, int):
        yield from _members(arguments[0])


def _is_named(kind: Any, name: str | int, members: Sequence[Any]) -> bool:
    """Whether pydantic calls this member of a union `name`, after its class or its tag.

    The tag is the value of a literal field that all models among the members have.
    """
    if not _is_model(kind):
        return False
    if kind.__name__ == name:
        return True
    models = [member for member in members if _is_model(member)]
    return any(
        name in typing.get_args(field.annotation)
        for key, field in kind.model_fields.items()
        if all(_is_literal(model.model_fields.get(key)) for model in models)
    )


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _is_literal(field: FieldInfo | None) -> bool:
    return field is not None and typing.get_origin(field.annotation) is typing.Literal


def _keys(candidates: Sequence[Any]) -> Iterator[str]:
    models = [kind for kind in candidates if _is_model(kind)]
    yield from dict.fromkeys(
        field.alias or name for model in models for name, field in model.model_fields.items()
    )


def _tags(candidates: Sequence[Any], key: str) -> Iterator[str]:
    for kind in candidates:
        if _is_model(kind) and key in kind.model_fields:
            yield from (str(tag) for tag in typing.get_args(kind.model_fields[key].annotation))


def _quoted(expected: str) -> Iterator[str]:
    """The words in pydantic's list: ``'a', 'b' or 'c'``."""
    words = re.findall(r"'((?:[^'\\]|\\.)*)'", expected)
    yield from words or re.split(r", | or ", expected)


def _show(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    return shorten(repr(value))
