"""The reference pages say what the code does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from rich.text import Text
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from uncia.cli import build
from uncia.cli.markdown import markdown
from uncia.experiment import model
from uncia.experiment.expect import Expect
from uncia.platforms import ADAPTERS
from uncia.workload.arrivals import PROCESSES

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    assert page == markdown(), "python -m uncia.cli.markdown > docs/reference/cli.md"


def test_a_command_alone_is_what_it_is_among_all() -> None:
    root = get_command(build())
    assert isinstance(root, TyperGroup)
    assert len(root.commands) >= 15
    for name, command in root.commands.items():
        alone = get_command(build(name))
        assert isinstance(alone, TyperGroup)
        assert list(alone.commands) == [name]
        assert list(helps(alone.commands[name], name)) == list(helps(command, name))
    for name in ("nothing", "pages", "--help"):
        assert list(get_command(build(name)).commands) == list(root.commands)


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
    if isinstance(command, TyperGroup):
        for sub, item in command.commands.items():
            assert isinstance(item, TyperGroup | TyperCommand)
            yield from helps(item, f"{name} {sub}")


def test_nothing_in_a_help_text_is_taken_for_markup_and_left_out() -> None:
    root = get_command(build())
    assert isinstance(root, TyperGroup)
    texts = dict(helps(root, "uncia"))
    assert len(texts) > 300
    lost = {name: text for name, text in texts.items() if Text.from_markup(text).plain != text}
    assert lost == {}


@pytest.mark.parametrize(
    "form",
    [
        model.ExperimentFile,
        model.Function,
        model.Experiment,
        model.Stream,
        model.Sweep,
        Expect,
        *PROCESSES,
        *(adapter.Options for adapter in ADAPTERS.values()),
    ],
    ids=lambda form: f"{form.__module__}.{form.__name__}",
)
def test_every_key_of_the_experiment_file_has_its_place_in_the_page(
    form: type[BaseModel],
) -> None:
    page = (REFERENCE / "experiment-file.md").read_text(encoding="utf-8")
    keys = [field.alias or name for name, field in form.model_fields.items()]
    missing = [key for key in keys if f"`{key}`" not in page and f"{{{key}: " not in page]
    assert missing == []
