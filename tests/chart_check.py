"""Every chart that a test draws follows the schema of Vega-Lite, in commands that it starts too."""

from collections.abc import Iterator

import pytest

from uncia.report import checks


@pytest.fixture(scope="session", autouse=True)
def charts_are_valid() -> Iterator[None]:
    """Checks each chart that is drawn, once, as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(checks.CHECK, "1")
        yield
