"""The functions an experiment file names: found, checked, and made into events and packages."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment.model import Function
from uncia.settings import LANGUAGES, Runtime

if TYPE_CHECKING:
    from uncia import functions


@dataclass
class Sources:
    """Finds the functions that ``source`` names, each read once.

    Attributes:
        document: the experiment file, for errors that say where.
        base: the folder that paths in it are relative to.
    """

    document: yamlio.Document
    base: Path
    _definitions: dict[str, functions.Function] = field(default_factory=dict)
    _packaged: set[tuple[str, str | None, str | None]] = field(default_factory=set)

    def definition(self, source: str) -> functions.Function:
        """The function a ``source`` names.

        :raises UnciaError: there is none, or its form is not right.
        """
        from uncia import functions

        if source not in self._definitions:
            # A name is in the catalogue; anything with a slash is a folder, beside the file.
            folder = self.base / source if "/" in source else source
            self._definitions[source] = functions.load(folder)
        return self._definitions[source]

    def check(self, alias: str, function: Function) -> None:
        """That the function is there and has the runtime asked for.

        :raises UnciaError: with file, line and key.
        """
        if function.declared_by is None:
            return
        at: yamlio.KeyPath = ("functions", alias)
        key = "parameters_of" if function.source is None else "source"
        try:
            definition = self.definition(function.declared_by)
        except UnciaError as error:
            raise self.document.error((*at, key), error.message, hint=error.hint) from error
        if function.source is None:
            return
        if (
            function.runtime is not None
            and language(function.runtime) not in definition.runtime_names
        ):
            raise self.document.error(
                (*at, "runtime"),
                f"{definition.name} does not exist in {function.runtime!r}",
                definition.runtime_names,
            )
        self.check_package(function, (*at, "source"))

    def check_package(self, function: Function, at: yamlio.KeyPath) -> None:
        """That a package of the function can be made: its handler, and its lock of requirements.

        :raises UnciaError: with file, line and key.
        """
        if function.source is None:
            return
        from uncia import functions

        runtime = None if function.runtime is None else language(function.runtime)
        key = (function.source, runtime, function.handler)
        if key in self._packaged:
            return
        try:
            functions.check(self.definition(function.source), runtime, function.handler)
        except UnciaError as error:
            raise self.document.error(at, error.message, hint=error.hint) from error
        self._packaged.add(key)

    def check_invokes(self, function: Function, at: yamlio.KeyPath) -> None:
        """That the function can invoke others, as a stage of a chain.

        Raises:
            UnciaError: with file, line and key.
        """
        from uncia.functions import calls

        if function.source is None:
            return
        definition = self.definition(function.source)
        if definition.takes_any_event:
            raise self.document.error(
                at,
                f"{definition.name} is a plain folder: its handler does not invoke the next stage",
                hint="Give it a function.yaml, and make its handler with uncia's envelope.",
            )
        name = function.runtime
        runtime = definition.runtime_names[0] if name is None else language(name)
        try:
            calls.folder(runtime)
        except UnciaError as error:
            raise self.document.error(at, error.message, hint=error.hint) from error

    def check_start(self, function: Function, at: yamlio.KeyPath) -> None:
        """That instances of the function's runtime can be started from what it asks for.

        :raises UnciaError: with file, line and key.
        """
        chosen = function.declared().get("start_from")
        runtime = self.runtime(function)
        if chosen is None or runtime is None or chosen in runtime.start_from:
            return
        raise self.document.error(
            at, f"no function in {runtime.name} is started from {chosen!r}", runtime.start_from
        )

    def runtime(self, function: Function) -> Runtime | None:
        """What it runs in, if that is one of the platform's."""
        if function.runtime is not None:
            return LANGUAGES.get(language(function.runtime))
        if function.source is None:
            return None
        return LANGUAGES.get(self.definition(function.source).runtime_names[0])

    def event(
        self,
        function: Function,
        parameters: Mapping[str, Any],
        at: yamlio.KeyPath,
        *,
        templates: Collection[str] = (),
    ) -> dict[str, Any]:
        """The event for merged parameters: of a catalogue function checked, with its defaults.

        The parameters named in ``templates`` get their values with each request: those have no
        type yet, and only the names are checked.

        :raises UnciaError: an unknown parameter or a value that it does not take, with file and
            line.
        """
        from uncia import functions

        filled = {name: value for name, value in parameters.items() if name in templates}
        values = {name: value for name, value in parameters.items() if name not in templates}
        if function.declared_by is None:
            return {**values, **filled}
        definition = self.definition(function.declared_by)
        if definition.takes_any_event:
            return {**values, **filled}
        self._check_names(definition, parameters, at)
        try:
            return {**functions.validate_params(definition, values), **filled}
        except UnciaError as error:
            raise self.document.error(at, error.message, hint=error.hint) from error

    def _check_names(
        self, definition: functions.Function, names: Iterable[str], at: yamlio.KeyPath
    ) -> None:
        """That a catalogue function has parameters of these names.

        :raises UnciaError: with file and line.
        """
        for name in names:
            if name not in definition.parameters:
                raise self.document.error(
                    (*at, name),
                    f"{definition.name} has no parameter {name!r}",
                    tuple(definition.parameters) or ("none",),
                )


def language(runtime: str) -> str:
    """The language of a runtime: ``python3.12`` -> ``python``, ``nodejs20.x`` -> ``node``."""
    name = re.match(r"[a-z]*", runtime)
    text = name.group() if name else ""
    return "node" if text == "nodejs" else text
