"""Every chart that a test draws follows the schema of Vega-Lite; the pages themselves skip that."""

import json
from collections.abc import Iterator
from typing import Any

import pytest


def _without_rows(spec: Any) -> Any:
    """A specification with one row of each table, as rows are most of it and alike."""
    if isinstance(spec, dict):
        return {
            key: value[:1] if key == "values" and isinstance(value, list) else _without_rows(value)
            for key, value in spec.items()
        }
    return [_without_rows(one) for one in spec] if isinstance(spec, list) else spec


@pytest.fixture(scope="session", autouse=True)
def charts_are_valid() -> Iterator[None]:
    """Checks each chart that is drawn, once."""
    import altair

    from uncia.report import charts

    draw, seen = charts.specification, set[str]()

    def checked(chart: Any) -> charts.Spec:
        spec = draw(chart)
        plain = _without_rows(spec)
        text = json.dumps(plain, sort_keys=True, default=str)
        if text not in seen:
            altair.Chart.from_dict(plain, validate=True)
            seen.add(text)
        return spec

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "specification", checked)
        yield
