"""YAML text to plain data, whose lines are remembered, and back."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from uncia.errors import UnciaError

KeyPath = tuple[str | int, ...]
"""Mapping keys and list positions from the top to a value, e.g. ("steps", 0, "rate")."""

MAX_NODES: Final = 200_000
"""Values in one document, aliases counted each time: far more than a person writes. It stops an
alias bomb in well under a second."""

MAX_DEPTH: Final = 64
"""Levels of nesting; the deepest form of this project has fewer than ten."""

NOT_IN_YAML: Final = yaml.reader.Reader.NON_PRINTABLE
"""The characters that no YAML document may hold."""


class _Dumper(yaml.SafeDumper):
    """Writes no anchors and aliases, which are hard to read."""

    def ignore_aliases(self, data: Any) -> bool:
        del data
        return True


class _Loader(yaml.SafeLoader):
    """PyYAML's safe parser with the scalar rules of the YAML 1.2 core schema."""


_Loader.yaml_implicit_resolvers = {}
_CORE_SCHEMA: Final = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
)
for _name, _pattern, _first in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_name}",
        re.compile(rf"^(?:{_pattern})$"),
        ["" if letter == "\0" else letter for letter in _first],
    )

_LOADERS: Final[list[Any]] = [_Loader]
if yaml.__with_libyaml__:
    from yaml._yaml import CParser

    class _FastLoader(yaml.composer.Composer, CParser, yaml.resolver.Resolver):
        """The same with libyaml's parser, in a fraction of the time.

        Nodes are composed in Python, which notices how deep they are.
        """

        yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            yaml.composer.Composer.__init__(self)
            yaml.resolver.Resolver.__init__(self)

    # What it finds fault with, the other one describes better.
    _LOADERS.insert(0, _FastLoader)

_DISPUTED: Final = re.compile(r"[\t!\ufeff]|\?(?:\s|$)|[|>][-+0-9]*#")
"""What the two take differently: tabs between words, tags, byte order marks and question marks are
errors to one of them, or not. A file means the same whether libyaml is there or not."""


class Document:
    """A YAML document as plain data, with the line of every key.

    Attributes:
        name: the file's name in messages.
        data: dict, list, str, int, float, bool or None, nested; None when the file is empty.
    """

    def __init__(
        self, name: str, data: Any, lines: Mapping[KeyPath, int], variant: str = ""
    ) -> None:
        self.name = name
        self.data = data
        self._lines = dict(lines)
        self._variant = variant

    def line(self, path: KeyPath) -> int:
        """The line (from 1) of the key at `path`, or of the nearest key above it."""
        for length in range(len(path), -1, -1):
            line = self._lines.get(tuple(path[:length]))
            if line is not None:
                return line
        return 1

    def with_data(self, data: Any) -> Document:
        """Replace the data; keys of the same path keep their lines."""
        return Document(self.name, data, self._lines, self._variant)

    def variant(self, data: Any, moved: Mapping[KeyPath, KeyPath], what: str) -> Document:
        """One of several documents that a file stands for, with the lines of the file.

        Args:
            data: its content.
            moved: where keys of the content, with all below them, stand in the file.
            what: which document it is, for errors.
        """
        lines = {
            path: line
            for path, line in self._lines.items()
            if not any(path[: len(target)] == target for target in moved)
        }
        for target, source in moved.items():
            for path, line in self._lines.items():
                if path[: len(source)] == source:
                    lines[(*target, *path[len(source) :])] = line
        return Document(self.name, data, lines, what)

    def error(
        self,
        path: KeyPath,
        message: str,
        allowed: Sequence[str] = (),
        *,
        hint: str | None = None,
    ) -> UnciaError:
        """An error about the key at `path`: ``file:line: key: message (allowed: ...)``.

        Of a :meth:`variant` the file and line are followed by which it is.
        """
        return UnciaError(self.sentence(path, message, allowed), hint)

    def sentence(self, path: KeyPath, message: str, allowed: Sequence[str] = ()) -> str:
        """What :meth:`error` says of the key at `path`."""
        key = f"{format_path(path)}: " if path else ""
        tail = f" (allowed: {', '.join(allowed)})" if allowed else ""
        variant = f", {self._variant}" if self._variant else ""
        return f"{self.name}:{self.line(path)}{variant}: {key}{message}{tail}"


def format_path(path: KeyPath) -> str:
    """A key path as text: ``steps[0].rate``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def load(
    path_or_text: Path | str,
    name: str | None = None,
    *,
    repeated: list[tuple[KeyPath, int]] | None = None,
) -> Document:
    """Read one YAML document.

    Args:
        path_or_text: a `Path` is a file to read; a `str` is the YAML text itself.
        name: the name to show in messages; by default the path, or ``<text>``.
        repeated: receives each key that is there again, with the line of the last, which counts;
            without it such a key is an error.

    Raises:
        UnciaError: the file cannot be read, is not UTF-8, is not YAML, or has a key twice, a
            key that is not text, a tag, a merge key or a second document; with file and line.
    """
    if isinstance(path_or_text, Path):
        label = name or str(path_or_text)
        text = _read(path_or_text, label)
    else:
        label = name or "<text>"
        text = path_or_text
    if repeated is not None:
        return _parse(label, text, repeated)
    known = _parsed(label, text)
    # Whoever gets it may change it.
    return known.with_data(copy.deepcopy(known.data))


@lru_cache(maxsize=64)
def _parsed(label: str, text: str) -> Document:
    """The document of a text; suites read the same files several times."""
    return _parse(label, text, None)


def _parse(label: str, text: str, repeated: list[tuple[KeyPath, int]] | None) -> Document:
    # PyYAML's own message about a NUL does not say that the file is binary.
    if "\0" in text:
        raise UnciaError(f"{label}: this is not a text file (it holds a NUL byte)")
    if forbidden := NOT_IN_YAML.search(text):
        before = text.count("\n", 0, forbidden.start())
        raise UnciaError(
            f"{label}:{before + 1}: this is not valid YAML: the control"
            f" character U+{ord(forbidden[0]):04X} may not stand in it"
        )
    for loader in () if _DISPUTED.search(text) else _LOADERS[:-1]:
        again: list[tuple[KeyPath, int]] | None = None if repeated is None else []
        # Also what it says itself: of an empty second document it names another line.
        with suppress(yaml.YAMLError, RecursionError, UnciaError):
            document = _read_document(loader(text), label, again)
            if repeated is not None:
                repeated += again or []
            return document
    try:
        return _read_document(_LOADERS[-1](text), label, repeated)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None else ""
        reason = " ".join(part for part in (error.context, error.problem) if part)
        hint = "Indent with spaces: YAML takes no tabs for that." if "'\\t'" in reason else None
        raise UnciaError(f"{label}{line}: this is not valid YAML: {reason}", hint) from error
    except yaml.YAMLError as error:
        raise UnciaError(f"{label}: this is not valid YAML: {error}") from error
    except RecursionError as error:
        raise UnciaError(f"{label}: nested deeper than {MAX_DEPTH} levels") from error


def _read_document(loader: Any, label: str, repeated: list[tuple[KeyPath, int]] | None) -> Document:
    try:
        root = loader.get_node() if loader.check_node() else None
        second = loader.get_node() if root is not None and loader.check_node() else None
        if second is not None:
            raise UnciaError(
                f"{label}:{second.start_mark.line + 1}: a second document begins here;"
                " one file holds one document"
            )
        if root is None:
            return Document(label, None, {(): 1})
        builder = _Builder(loader, label, repeated)
        data = builder.build(root, (), 0)
        return Document(label, data, builder.lines)
    finally:
        loader.dispose()


def _read(path: Path, label: str) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise UnciaError(f"{label}: there is no such file") from error
    except IsADirectoryError as error:
        raise UnciaError(f"{label}: this is a folder, not a file") from error
    except UnicodeDecodeError as error:
        raise UnciaError(f"{label}: this is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise UnciaError(f"{label}: cannot be read: {error.strerror or error}") from error


class _Builder:
    """Turns a tree of YAML nodes into plain data and the table of line numbers."""

    def __init__(self, loader: Any, name: str, repeated: list[tuple[KeyPath, int]] | None) -> None:
        self.loader = loader
        self.name = name
        self.repeated = repeated
        self.lines: dict[KeyPath, int] = {(): 1}
        self.nodes = 0

    def build(self, node: yaml.Node, path: KeyPath, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise self._error(node, f"more than {MAX_NODES} values in one file")
        if depth > MAX_DEPTH:
            raise self._error(node, f"nested deeper than {MAX_DEPTH} levels")
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            self._check_tag(node, "map")
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            self._check_tag(node, "seq")
            return [
                self.build(item, (*path, position), depth + 1)
                for position, item in enumerate(node.value)
            ]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node)
            key_path = (*path, key)
            if key in result and self.repeated is None:
                first = self.lines[key_path]
                raise self._error(
                    key_node, f"{format_path(key_path)}: this key is already on line {first}"
                )
            if key in result and self.repeated is not None:
                self.repeated.append((key_path, key_node.start_mark.line + 1))
            self.lines[key_path] = key_node.start_mark.line + 1
            result[key] = self.build(value_node, key_path, depth + 1)
        return result

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, "a key must be text, not a list or a mapping")
        if node.value == "<<" and not node.style:
            raise self._error(node, "merge keys (<<) are not supported; write the keys out")
        key = self._scalar(node)
        if not isinstance(key, str):
            raise self._error(
                node, f'the key {node.value} must be text; put it in quotes: "{node.value}"'
            )
        return key

    def _scalar(self, node: yaml.Node) -> Any:
        text: str = node.value
        match node.tag:
            case "tag:yaml.org,2002:str":
                return text
            case "tag:yaml.org,2002:null":
                return None
            case "tag:yaml.org,2002:bool":
                return text.lower() == "true"
            case "tag:yaml.org,2002:int":
                return self._integer(node, text)
            case "tag:yaml.org,2002:float":
                return self._number(node, text)
        raise self._error(node, f"the tag {node.tag} is not allowed here; only plain data is")

    def _integer(self, node: yaml.Node, text: str) -> int:
        try:
            return int(text, 0) if text[:2] in ("0x", "0o") else int(text, 10)
        except ValueError as error:
            raise self._error(node, f"{shorten(text)} is not a whole number") from error

    def _number(self, node: yaml.Node, text: str) -> float:
        try:
            return float(re.sub(r"\.(inf|nan)$", r"\1", text.lower()))
        except ValueError as error:
            raise self._error(node, f"{shorten(text)} is not a number") from error

    def _check_tag(self, node: yaml.Node, kind: str) -> None:
        if node.tag != f"tag:yaml.org,2002:{kind}":
            raise self._error(node, f"the tag {node.tag} is not allowed here; only plain data is")

    def _error(self, node: yaml.Node, message: str) -> UnciaError:
        return UnciaError(f"{self.name}:{node.start_mark.line + 1}: {message}")


def shorten(text: str, limit: int = 60) -> str:
    """Cut a text that is longer than a message bears."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def dump(document: Mapping[str, Any]) -> str:
    """Write a document as YAML text, with keys in their order and without aliases."""
    return yaml.dump(
        dict(document),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )
