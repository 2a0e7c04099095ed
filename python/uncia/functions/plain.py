"""Plain folders as functions: a handler as it is deployed to Lambda, without ``function.yaml``.

Such a folder says nothing of parameters, so that its function takes any event.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from uncia.errors import UnciaError
from uncia.functions import maven
from uncia.functions.dependencies import logical_lines
from uncia.functions.form import Function

REQUIREMENTS: Final = "requirements.txt"
LOCK: Final = "requirements.lock"

# A file that makes a folder a function, with its runtime and its handler if it has a name: AWS's
# own names first.
_HANDLERS: Final = (
    ("lambda_function.py", "python", "lambda_function.lambda_handler"),
    ("handler.py", "python", "handler.handler"),
    ("index.mjs", "node", "index.handler"),
    ("index.js", "node", "index.handler"),
    ("lambda_function.rb", "ruby", "lambda_function.lambda_handler"),
    ("handler.rb", "ruby", "handler.handler"),
    ("Handler.java", "java", "Handler::handleRequest"),
    ("go.mod", "go", None),
    ("function.wasm", "wasm", "function.wasm"),
)
FILES: Final = tuple(file for file, _, _ in _HANDLERS)
"""The files that make a folder a function."""

# Enough for most handlers, so that a first run measures them and not their limits.
_MEMORY: Final = "512MB"
_TIMEOUT: Final = "30s"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


def is_plain(folder: Path) -> bool:
    """Whether a folder holds a handler under a usual name."""
    return any((folder / file).is_file() for file in FILES)


def load(folder: Path) -> Function:
    """Make the function of a plain folder.

    Raises:
        UnciaError: its requirements cannot be read, or hold more than requirements.
    """
    file, runtime, handler = next(entry for entry in _HANDLERS if (folder / entry[0]).is_file())
    required = runtime in ("python", "java")
    requirements = _requirements(folder / REQUIREMENTS, runtime) if required else []
    form: dict[str, Any] = {} if handler is None else {"handler": handler}
    function = Function.model_validate(
        {
            "name": re.sub(r"[^A-Za-z0-9_-]", "-", folder.name).strip("-_")[:32] or "function",
            "description": f"The handler of {file}, without a function.yaml.",
            "runtimes": {runtime: form},
            "parameters": {},
            "sizes": {"test": {}, "small": {}, "large": {}},
            "answer": {"text": "Anything."},
            "memory": _MEMORY,
            "timeout": _TIMEOUT,
        }
    )
    function.make_plain(requirements, folder / LOCK)
    return function


def _requirements(path: Path, runtime: str) -> list[str]:
    """The requirements of a plain folder, as uv or Maven takes them; none without the file.

    Raises:
        UnciaError: it cannot be read, or a line is no requirement.
    """
    if not path.exists():
        return []
    try:
        lines = logical_lines(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UnciaError(f"{path} cannot be read: {error}") from error
    for number, line in lines:
        if runtime == "java" and maven.REQUIREMENT.fullmatch(line) is None:
            raise UnciaError(
                f"{path}:{number}: {line.split()[0]} is no artifact",
                hint="Write group:artifact:version in each line.",
            )
        if _NAME.match(line) is None:
            raise UnciaError(
                f"{path}:{number}: {line.split()[0]} is no requirement",
                hint="Write a distribution in each line, such as pillow or pillow>=11; files and"
                " options are not followed.",
            )
    # Hashes belong to the lock, which has its own.
    return [re.split(r"\s+--hash=", line)[0].strip() for _, line in lines]
