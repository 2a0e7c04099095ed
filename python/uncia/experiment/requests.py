"""What the requests of a stream say: an event, or a template with fields in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment.model import Function, Sender
from uncia.experiment.sources import Sources
from uncia.workload import chains, columns
from uncia.workload.columns import ColumnField
from uncia.workload.model import ChoiceField, FieldForm, IntegerField
from uncia.workload.replay import Replayed


@dataclass(frozen=True)
class Requests:
    """The requests of a stream.

    Attributes:
        event: what each of them sends.
        template: what is sent instead, with fields.
        fields: the fields that are drawn, in the engine's form.
        columns: the fields whose values are those of recorded rows.
    """

    event: Mapping[str, Any]
    template: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, ColumnField] = field(default_factory=dict)

    def fields_for(self, part: Replayed) -> dict[str, Any]:
        """Return all fields in the engine's form, with the values of a recorded function's rows.

        Raises:
            UnciaError: a value is null, and the field has no default.
        """
        return {
            **self.fields,
            **{
                name: columns.engine(form, part.columns[form.column], part.function, quoted=True)
                for name, form in self.columns.items()
            },
        }


def make(sources: Sources, function: Function, sender: Sender, at: yamlio.KeyPath) -> Requests:
    """Make the requests of a stream to a function.

    Args:
        sources: checks events, and knows the file.
        function: of the file.
        sender: the checked stream or experiment.
        at: the sender in the file.

    Raises:
        UnciaError: a parameter or field is wrong; with file, line and key.
    """
    document = sources.document
    parameters = {**function.parameters, **sender.parameters}
    if not sender.fields:
        return Requests(sources.event(function, parameters, (*at, "parameters")))
    if function.method in ("GET", "HEAD"):
        raise document.error(
            (*at, "fields"), f"{function.method} has no body that a field could be in"
        )
    names = (*chains.GIVEN, *sender.fields)
    filled: set[str] = set()
    used: set[str] = set()
    for key, value in parameters.items():
        key_path: yamlio.KeyPath = (*at, "parameters", key)
        texts = [text for text in chains.texts(value) if chains.names(text)]
        for text in texts:
            chains.check_without_answers(document, key_path, text, names)
            used |= chains.names(text)
            _check_unit(sources, function, key, text, sender.fields, key_path)
            _check_list(document, text, sender.fields, key_path)
        if texts:
            filled.add(key)
    for name in sender.fields:
        if name not in used:
            raise document.error(
                (*at, "fields", name), f"nothing uses it: write {{{{{name}}}}} in a parameter"
            )
    event = sources.event(function, parameters, (*at, "parameters"), templates=filled)
    numbers = {
        name: _is_number(document, (*at, "fields", name), form)
        for name, form in sender.fields.items()
    }
    return Requests(
        event,
        template(event, numbers),
        {
            name: _engine(form)
            for name, form in sender.fields.items()
            if not isinstance(form, ColumnField)
        },
        {name: form for name, form in sender.fields.items() if isinstance(form, ColumnField)},
    )


def template(event: Mapping[str, Any], numbers: Mapping[str, bool]) -> str:
    """Write an event as the template of a body; ``numbers`` names the fields that may be in it."""
    return chains.event_template(event, {**dict.fromkeys(chains.GIVEN, False), **numbers})


def _is_number(document: yamlio.Document, at: yamlio.KeyPath, form: FieldForm) -> bool:
    if not isinstance(form, ColumnField):
        return isinstance(form, IntegerField)
    try:
        return columns.is_number(form)
    except UnciaError as error:
        raise document.error((*at, "column"), error.message, hint=error.hint) from error


def _engine(form: FieldForm) -> dict[str, Any]:
    """Convert a field for a place within the quotes of JSON."""
    data = form.model_dump(mode="json")
    if isinstance(form, ChoiceField):
        data["values"] = [json.dumps(value)[1:-1] for value in form.values]
    return data


def _check_list(
    document: yamlio.Document, text: str, fields: Mapping[str, FieldForm], at: yamlio.KeyPath
) -> None:
    """Check that a column of lists is all of a parameter, as it is JSON itself."""
    for name in chains.names(text):
        form = fields.get(name)
        if (
            isinstance(form, ColumnField)
            and columns.is_list(form)
            and name != chains.only_name(text)
        ):
            raise document.error(
                at, f"the field {name} has lists, and stands alone in a parameter: {{{{{name}}}}}"
            )


def _check_unit(
    sources: Sources,
    function: Function,
    parameter: str,
    text: str,
    fields: Mapping[str, FieldForm],
    at: yamlio.KeyPath,
) -> None:
    """Check that a column goes into a catalogue function's parameter in the unit that it takes."""
    name = chains.only_name(text)
    form = None if name is None else fields.get(name)
    if not isinstance(form, ColumnField) or function.declared_by is None:
        return
    declared = sources.definition(function.declared_by).parameters.get(parameter)
    if declared is None or declared.unit is None or declared.unit == columns.unit_of(form):
        return
    raise sources.document.error(
        at,
        f"{parameter} is in {declared.unit}, and the field {name} in {columns.unit_of(form)}: give"
        f" the field `unit: {declared.unit}`",
    )
