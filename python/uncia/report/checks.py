"""When charts are checked against the schema of Vega-Lite: in tests, and nowhere else.

Altair has the schema. To look at every chart takes longer than all the rest of a page, so that a
page goes without.
"""

import json
import os
from typing import Any

CHECK = "UNCIA_CHECK_CHARTS"
"""The variable of the environment that has every chart checked; tests set it, so that the commands
that they start do so too."""

_seen: set[str] = set()


def check(spec: dict[str, Any]) -> None:
    """Check a chart once, if the environment wants that.

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
    """A specification with one row of each table, as rows are most of it and alike."""
    if isinstance(spec, dict):
        return {
            key: value[:1] if key == "values" and isinstance(value, list) else _without_rows(value)
            for key, value in spec.items()
        }
    return [_without_rows(one) for one in spec] if isinstance(spec, list) else spec
