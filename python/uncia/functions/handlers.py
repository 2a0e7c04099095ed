"""Checks, without running anything, that a runtime folder holds its handler."""

from __future__ import annotations

import ast
import re
import stat
from pathlib import Path
from typing import Final

from uncia.errors import UnciaError
from uncia.functions import npm

_SERVERS: Final = {
    "python": (".py",),
    "node": (".js", ".mjs", ".cjs"),
    "ruby": (".rb",),
}
"""Endings of the files that are HTTP servers, by runtime."""


def check_handler(runtime: str, handler: str, folder: Path) -> None:
    """Check that ``handler`` (``module.function``) is in ``folder``.

    The name of a file with its ending is the handler of an HTTP server (``architecture: http``).
    Where the runtime's language is not known, check only that a file of that name exists.

    Raises:
        UnciaError: its file is missing or not valid Python, or does not define it.
    """
    module, _, name = handler.rpartition(".")
    if runtime == "provided":
        _check_executable(handler, folder)
    elif f".{name}" in _SERVERS.get(runtime, ()) and (folder / handler).is_file():
        if runtime == "python":
            _parse(folder / handler)
    elif runtime == "python":
        _check_python(handler, module, name, folder)
    elif runtime == "node":
        _check_node(handler, module, name, folder)
    elif runtime == "ruby":
        _check_ruby(handler, folder)
    elif runtime == "java":
        _check_java(handler, folder)
    elif runtime == "bash":
        _check_bash(handler, module, name, folder)
    elif not any(path.is_file() for path in folder.glob(f"{module}.*")):
        raise UnciaError(
            f"the handler {handler} is missing: there is no file {folder / module}.<ending>"
        )


def _check_executable(handler: str, folder: Path) -> None:
    path = folder / handler
    if not path.is_file():
        raise UnciaError(
            f"there is no executable {path}",
            hint="Put it there, or name the C file that it is compiled from: "
            "runtimes.provided.source.",
        )
    if not path.stat().st_mode & stat.S_IXUSR:
        raise UnciaError(f"{path} is not executable", hint=f"chmod +x {path}")


def _check_python(handler: str, module: str, name: str, folder: Path) -> None:
    if not module:
        raise UnciaError(f"{handler!r} is not a handler: write module.function, e.g. index.handler")
    base = folder.joinpath(*module.replace(".", "/").split("/"))
    path = base / "__init__.py" if base.is_dir() else base.with_name(f"{base.name}.py")
    if not path.is_file():
        raise UnciaError(f"the handler {handler} is missing: there is no file {path}")
    defined = _defined(_parse(path).body)
    if name not in defined and "*" not in defined:
        raise UnciaError(
            f"the handler {handler} is missing: {path} defines no {name}",
            hint=f"It defines: {', '.join(sorted(defined)) or 'nothing'}.",
        )


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise UnciaError(f"{path}:{error.lineno}: this is not valid Python: {error.msg}") from error
    except ValueError as error:
        raise UnciaError(f"{path}: this is not valid Python: {error}") from error


def _defined(body: list[ast.stmt]) -> set[str]:
    """Return the names that a module binds at its top, also inside if, try and with."""
    names: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names.update((a.asname or a.name).partition(".")[0] for a in statement.names)
            continue
        targets = (
            statement.targets
            if isinstance(statement, ast.Assign)
            else [statement.target]
            if isinstance(statement, ast.AnnAssign)
            else []
        )
        names.update(n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
        for block in ("body", "orelse", "finalbody"):
            names |= _defined(getattr(statement, block, []))
        for except_clause in getattr(statement, "handlers", []):
            names |= _defined(except_clause.body)
    return names


def _check_node(handler: str, module: str, name: str, folder: Path) -> None:
    candidates = [folder / f"{module}.{suffix}" for suffix in ("js", "mjs", "cjs")]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise UnciaError(f"the handler {handler} is missing: there is no file {candidates[0]}")
    text = path.read_text(encoding="utf-8", errors="replace")
    # A parser for JavaScript would weigh more than this check; the runtime has the last word.
    word = re.escape(name)
    exported = rf"exports\s*(\.\s*{word}\b|\[\s*['\"]{word}['\"]|=)|\bexport\b[^;]*\b{word}\b"
    if re.search(exported, text) is None:
        raise UnciaError(f"the handler {handler} is missing: {path} exports no {name}")
    npm.lock_path(folder)


def _check_ruby(handler: str, folder: Path) -> None:
    file, *_, name = handler.split(".")
    path = folder / f"{file}.rb"
    if not path.is_file():
        raise UnciaError(f"the handler {handler} is missing: there is no file {path}")
    text = path.read_text(encoding="utf-8", errors="replace")
    # It may come from a file that this one requires; the runtime has the last word.
    defined = (
        rf"\bdef\s+(self\s*\.\s*)?{re.escape(name)}(?!\w)|:{re.escape(name)}\b|^\s*(require|load)"
    )
    if re.search(defined, text, re.MULTILINE) is None:
        raise UnciaError(f"the handler {handler} is missing: {path} defines no method {name}")
    gems = folder / "Gemfile"
    if gems.is_file() and not (folder / "vendor" / "bundle").is_dir():
        listed = gems.read_text(encoding="utf-8", errors="replace")
        gem = re.search(r"^\s*gem\s*\(?\s*['\"]([^'\"]+)", listed, re.MULTILINE)
        if gem is not None:
            raise UnciaError(
                f"{gems} requires {gem[1]}, and there is no folder {folder / 'vendor/bundle'}",
                hint=f"cd {folder} && bundle config set --local path vendor/bundle"
                " && bundle install",
            )


def _check_java(handler: str, folder: Path) -> None:
    name, _, method = handler.partition("::")
    base = name.replace(".", "/")
    source = folder / f"{base}.java"
    if source.is_file():
        text = source.read_text(encoding="utf-8", errors="replace")
        # It may be inherited; the runtime has the last word.
        if method and not re.search(rf"\b{re.escape(method)}\s*\(|\bextends\b", text):
            raise UnciaError(f"the handler {handler} is missing: {source} defines no {method}")
    elif (
        not (folder / f"{base}.class").is_file()
        and not any(folder.glob("lib/*.jar"))
        # Jars that Maven will fetch.
        and not any(folder.glob("requirements.*"))
    ):
        raise UnciaError(
            f"the handler {handler} is missing: there is neither {source} nor a class, nor a jar in"
            f" {folder / 'lib'}"
        )


def _check_bash(handler: str, module: str, name: str, folder: Path) -> None:
    path = folder / f"{module}.sh"
    if not path.is_file():
        raise UnciaError(f"the handler {handler} is missing: there is no file {path}")
    text = path.read_text(encoding="utf-8", errors="replace")
    # It may come from a file that this one sources; the runtime has the last word.
    defined = rf"^\s*(function\s+{name}\b|{name}\s*\(\s*\))|^\s*(source|\.)\s"
    if re.search(defined, text, re.MULTILINE) is None:
        raise UnciaError(f"the handler {handler} is missing: {path} defines no function {name}")
