"""The reference pages say what the code does."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from uncia.cli.markdown import markdown
from uncia.experiment import model
from uncia.experiment.expect import Expect
from uncia.platforms import ADAPTERS
from uncia.workload.arrivals import PROCESSES

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    assert page == markdown(), "python -m uncia.cli.markdown > docs/reference/cli.md"


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
