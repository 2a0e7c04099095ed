"""The tables of settings in the reference pages.

To write them: ``python -m uncia.settings.markdown docs/reference/*.md``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from uncia.settings import FUNCTION_SETTINGS, PLATFORM_SETTINGS, Setting

_END: Final = "<!-- end of settings -->"
_SECTION: Final = re.compile(rf"<!-- settings: (\w+) -->\n.*?{_END}", re.DOTALL)


def update(page: str) -> str:
    """Return the page with its tables of settings updated."""
    return _SECTION.sub(
        lambda match: f"<!-- settings: {match[1]} -->\n{_TABLES[match[1]]()}{_END}", page
    )


def _platform() -> str:
    return _table(PLATFORM_SETTINGS.values(), _key, _values, Setting.default_text, _description)


def _function() -> str:
    return _table(FUNCTION_SETTINGS.values(), _key, _values, Setting.function_default_text, _effect)


def _tags() -> str:
    return _table(FUNCTION_SETTINGS.values(), _tag, _tag_values, _tag_default, _effect)


def _configuration() -> str:
    return _table(
        PLATFORM_SETTINGS.values(), _config_key, _json_values, _json_default, _description
    )


_TABLES: Final[dict[str, Callable[[], str]]] = {
    "platform": _platform,
    "function": _function,
    "tags": _tags,
    "configuration": _configuration,
}


def _table(settings: Iterable[Setting], *cells: Callable[[Setting], str]) -> str:
    lines = ["| | values | default | meaning |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(cell(setting) for cell in cells)} |" for setting in settings]
    return "\n".join(lines) + "\n"


def _key(setting: Setting) -> str:
    return f"`{setting.name}`"


def _tag(setting: Setting) -> str:
    return f"`{setting.tag}`"


def _config_key(setting: Setting) -> str:
    return f"`{setting.config_key}`"


def _description(setting: Setting) -> str:
    return setting.description


def _effect(setting: Setting) -> str:
    """Return what a setting means for a function, and for its instances if it changes."""
    replaces = " A change replaces the function's instances." if setting.replaces_instances else ""
    return setting.description + replaces


def _values(setting: Setting) -> str:
    """Return what a person may write."""
    choices = _choices(setting)
    if choices:
        return f"a list of {choices}" if setting.type == "services" else choices
    kinds = {
        "duration": "duration",
        "cpu": "CPU",
        "size": "size",
        "integer": "number",
        "cpus": "numbers of CPUs, such as 0,2-3",
    }
    return kinds[setting.type] + _range(
        setting, lambda number: setting.text(setting.from_engine(number))
    )


def _tag_values(setting: Setting) -> str:
    """Return what a tag may hold: numbers in the engine's unit."""
    if setting.type == "services":
        return f"some of {_choices(setting)}, with blanks between"
    if setting.type == "cpus":
        return "numbers of CPUs, such as 0,2-3"
    return _choices(setting) or (setting.unit or "number") + _range(setting, lambda n: f"{n:,}")


def _tag_default(setting: Setting) -> str:
    default = setting.default
    is_number = isinstance(default, int) and not isinstance(default, bool)
    text = f"{default:,}" if is_number else setting.default_text()
    return text if setting.config_key is None else f"the platform's, {text}"


def _json_values(setting: Setting) -> str:
    """Return what the engine's configuration accepts."""
    if setting.choices:
        return ", ".join(f'`"{choice}"`' for choice in setting.choices)
    return _tag_values(setting)


def _json_default(setting: Setting) -> str:
    return f"`{json.dumps(setting.default)}`"


def _choices(setting: Setting) -> str:
    choices = ("true", "false") if setting.type == "boolean" else setting.choices
    return ", ".join(f"`{choice}`" for choice in choices)


def _range(setting: Setting, text: Callable[[int], str]) -> str:
    if setting.maximum is not None:
        return f", {text(setting.minimum or 0)} to {text(setting.maximum)}"
    return f", at least {text(setting.minimum)}" if setting.minimum else ""


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        page = path.read_text(encoding="utf-8")
        if (updated := update(page)) != page:
            path.write_text(updated, encoding="utf-8")
