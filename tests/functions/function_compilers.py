"""Whether functions in languages that are compiled can be packaged here."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from uncia.errors import UnciaError
from uncia.functions import golang, java

FIND: Mapping[str, Callable[[], Any]] = {"go": golang.find, "java": java.find}
"""What finds the compiler of a language, by the language."""


def needs_compiler(language: str) -> None:
    """Skip the test where functions in a language cannot be compiled."""
    try:
        FIND[language]()
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")
