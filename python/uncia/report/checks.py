"""Checks of charts against the schema of Vega-Lite, in tests only.

Altair has the schema. Checking takes as long as drawing a page, so pages skip it.
"""

import functools
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

CHECK = "UNCIA_CHECK_CHARTS"
"""The environment variable that turns checks on; tests set it, and the commands they start inherit
it."""

_seen: set[str] = set()


def check(spec: dict[str, Any]) -> None:
    """Check a chart if the environment says so, and each specification only once.

    Raises:
        jsonschema.ValidationError: it does not follow the schema.
    """
    if not os.environ.get(CHECK):
        return
    plain = _without_rows(spec)
    text = json.dumps(plain, sort_keys=True, default=str)
    if text not in _seen:
        _validator().validate(plain)
        _seen.add(text)


@functools.cache
def _validator() -> Any:
    """What validates against the whole schema at once: Altair validates each part once more.

    Without importing Altair, which takes longer than all of a page's charts.
    """
    import jsonschema  # type: ignore[import-untyped]

    altair = importlib.util.find_spec("altair")
    assert altair is not None
    assert altair.origin is not None
    (path,) = Path(altair.origin).parent.glob("vegalite/*/schema/vega-lite-schema.json")
    schema = json.loads(path.read_text(encoding="utf-8"))
    return jsonschema.validators.validator_for(schema)(schema)


def _without_rows(spec: Any) -> Any:
    """A specification with only the first row of each table: the others have the same shape."""
    if isinstance(spec, dict):
        return {
            key: value[:1] if key == "values" and isinstance(value, list) else _without_rows(value)
            for key, value in spec.items()
        }
    return [_without_rows(item) for item in spec] if isinstance(spec, list) else spec
