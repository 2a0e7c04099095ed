"""``uncia schema``: JSON Schema of the YAML files that people write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

from uncia.cli import completion
from uncia.errors import UnciaError


def _experiment() -> dict[str, Any]:
    from uncia.experiment.model import json_schema

    return json_schema()


def _function() -> dict[str, Any]:
    from uncia.functions import json_schema

    return json_schema()


def _profile() -> dict[str, Any]:
    from uncia.profiles import Profile

    return Profile.model_json_schema(mode="validation")


def _simulation() -> dict[str, Any]:
    from uncia.experiment import sweep
    from uncia.experiment.simulation import SimulationFile

    schema = SimulationFile.model_json_schema(mode="validation")
    schema["properties"][sweep.KEY] = {
        "type": "object",
        "description": "Values of parameters, by their paths: each combination is a simulation",
        "properties": {"zip": {"type": "boolean", "description": "Take the values in step"}},
        "additionalProperties": {"type": "array", "minItems": 1},
    }
    return schema


def _suite() -> dict[str, Any]:
    from uncia.suites.forms import json_schema

    return json_schema()


def _tariff() -> dict[str, Any]:
    from uncia.tariffs import Tariff

    return Tariff.model_json_schema(mode="validation")


def _workload() -> dict[str, Any]:
    from uncia.workload.model import json_schema

    return json_schema()


_FORMS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "experiment": _experiment,
    "function": _function,
    "profile": _profile,
    "simulation": _simulation,
    "suite": _suite,
    "tariff": _tariff,
    "workload": _workload,
}


def register(app: typer.Typer) -> None:
    """Add the command ``schema`` to ``app``."""

    @app.command()
    def schema(
        form: str = typer.Argument(
            help=f"One of: {', '.join(_FORMS)}.",
            autocompletion=completion.words("|".join(_FORMS)),
        ),
    ) -> None:
        """Print the JSON Schema of a YAML form, so that an editor completes and checks it."""
        if form not in _FORMS:
            raise UnciaError(f"there is no form {form!r}", hint=f"Forms: {', '.join(_FORMS)}.")
        typer.echo(json.dumps(_FORMS[form](), indent=2, ensure_ascii=False))
