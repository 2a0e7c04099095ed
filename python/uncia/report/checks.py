"""Checks of charts against the schema of Vega-Lite, in tests only.

Altair has the schema. Checking takes longer than everything else in a page, so pages skip it.
"""

import json
import os
from typing import Any

CHECK = "UNCIA_CHECK_CHARTS"
"""The environment variable that turns checks on; tests set it, and the commands they start inherit
it."""

_seen: set[str] = set()


def check(spec: dict[str, Any]) -> None:
    """Check a chart if the environment says so, and each specification only once.

    Raises:
        SchemaValidationError: it does not follow the schema.
    """
    if not os.environ.get(CHECK):
        return
    import altair

    plain = _without_rows(spec)
    text = json.dumps(plain, sort_keys=True, default=str)
    if text not in _seen:
        altair.Chart.from_dict(plain, validate=True)
        _seen.add(text)


def _without_rows(spec: Any) -> Any:
    """A specification with only the first row of each table: the others have the same shape."""
    if isinstance(spec, dict):
        return {
            key: value[:1] if key == "values" and isinstance(value, list) else _without_rows(value)
            for key, value in spec.items()
        }
    return [_without_rows(item) for item in spec] if isinstance(spec, list) else spec
