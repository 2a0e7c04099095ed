"""Files of JSON records and of log lines, of any size, a record at a time.

A log is exported as one list, as an object that holds the list among other keys, as one record a
line, or as records one behind the other. Each of them may be a file of a single line, so nothing
here needs a line to end: the text is read in pieces, and what was decoded is forgotten. Numbers
with a fraction stay the decimal text that they are; nothing becomes a float.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import re
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import IO, Any, Final, cast

from uncia.errors import UnciaError
from uncia.traces.packed import refuse_archive
from uncia.traces.rejected import shown

CHUNK_BYTES: Final = 1 << 20
"""Text that is read at once."""

MAX_RECORD_CHARS: Final = 64 << 20
"""A longer record or line belongs to no log; without a bound, it would fill memory."""

MAX_MEMBERS: Final = 100_000
"""An object of more members is no record of a log."""

_MAX_INTEGER_CHARS: Final = 100
_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_WITHIN_JSON: Final = ('"', "}", "]", ",", ":")  # what a record does not begin with
_CUT_TOKEN: Final = re.compile(r"\s*|[-\\A-Za-z0-9]{1,15}")
_NUMBER_TAIL: Final = re.compile(r"[0-9.eE+-]{0,400}\Z")
_SHOWN_AROUND: Final = 40
_TOKEN_CHARS: Final = 16  # an escape or a literal that the end of a piece may cut is shorter


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked if gzip, bzip2 or xz; errors name the file.

    Raises:
        UnciaError: the file cannot be read, is an archive, cut off or damaged.
    """
    try:
        with path.open("rb") as raw:
            magic = raw.read(8)
            raw.seek(0)
            if magic.startswith(b"\x1f\x8b"):
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield cast(IO[bytes], unpacked)
            elif magic.startswith(b"BZh"):
                with bz2.BZ2File(raw) as bzipped:
                    yield cast(IO[bytes], bzipped)
            elif magic.startswith(b"\xfd7zXZ"):
                with lzma.LZMAFile(raw) as xzipped:
                    yield cast(IO[bytes], xzipped)
            else:
                refuse_archive(path, magic)
                yield raw
    except EOFError as error:
        raise UnciaError(
            f"{path} is cut off: its compressed data ends before its end mark",
            hint="Fetch or copy the file again.",
        ) from error
    except (gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise UnciaError(
            f"{path} is damaged: {error}", hint="Fetch or copy the file again."
        ) from error
    except OSError as error:
        raise UnciaError(f"{path} cannot be read: {error.strerror or error}") from error


class Text:
    """The text of a file, a piece at a time, with the line that it has come to."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self.buffer = ""
        self.at = 0
        """Where the next character to use stands in ``buffer``."""
        self._file = file
        self._ended = False
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
        self._line = 1
        self._counted = 0

    def line(self) -> int:
        """The line of the next character, from 1."""
        self._line += self.buffer.count("\n", self._counted, self.at)
        self._counted = self.at
        return self._line

    def more(self) -> bool:
        """Drop what was used and read on, as much again as is left; whether there was more."""
        self.line()
        left = self.buffer[self.at :]
        self.at = self._counted = 0
        pieces, wanted = [left], max(len(left), 1)
        while wanted > 0 and not self._ended:
            data = self._file.read(CHUNK_BYTES)
            self._ended = not data
            pieces.append(self._decoder.decode(data, final=self._ended))
            wanted -= len(pieces[-1])
        self.buffer = "".join(pieces)
        return len(self.buffer) > len(left)

    def peek(self) -> str:
        """The next character that is no space, which is then next; empty at the end."""
        while True:
            match = _NOT_SPACE.search(self.buffer, self.at)
            if match:
                self.at = match.start()
                return match.group()
            self.at = len(self.buffer)
            if not self.more():
                return ""

    def readline(self) -> str | None:
        """The next line without its end; None if there is none.

        Raises:
            UnciaError: the line is longer than :data:`MAX_RECORD_CHARS`.
        """
        searched = 0
        while (end := self.buffer.find("\n", self.at + searched)) < 0:
            searched = len(self.buffer) - self.at
            if searched > MAX_RECORD_CHARS:
                raise UnciaError(
                    f"{self.path}, line {self.line()} is longer than {MAX_RECORD_CHARS >> 20} Mi"
                    " characters, so this is no log"
                )
            if not self.more():
                break
        if end < 0:
            if self.at == len(self.buffer):
                return None
            end = len(self.buffer)
        line = self.buffer[self.at : end]
        self.at = min(end + 1, len(self.buffer))
        return line.removesuffix("\r")


@dataclass(frozen=True)
class Record:
    """A record of a file.

    Attributes:
        value: as JSON means it; a number with a fraction is a `Decimal`, or its text where its
            exponent is beyond what a `Decimal` holds; NaN is None.
        line: the line that it begins in, from 1.
        index: its number in the file, from 1.
        around: the members of the object that holds its list, as far as they were before it.
    """

    value: Any
    line: int
    index: int
    around: dict[str, Any]


@dataclass(frozen=True)
class Broken:
    """A line that should be a record and is no JSON.

    Attributes:
        text: the line.
        line: its number, from 1.
        index: the number that the record would have, from 1.
    """

    text: str
    line: int
    index: int


class _Malformed(Exception):
    """The JSON is wrong where the text stands."""


class _CutOff(_Malformed):
    """The text ends where the JSON does not."""


def records(text: Text, lists: Collection[str] = ()) -> Iterator[Record | Broken]:
    """The records of a file of JSON, in order.

    A top-level list gives its elements. An object that has a list under one of the names in
    ``lists`` gives the elements of that list; any other object is a record itself. Such values may
    follow one another, on lines of their own or not. A line that is no JSON, where a record may
    begin on the next, is `Broken`.

    Raises:
        UnciaError: the JSON is cut off, malformed within a list, or a record is longer than
            :data:`MAX_RECORD_CHARS`.
    """
    return _Scanner(text, frozenset(lists)).run()


class _Scanner:
    def __init__(self, text: Text, lists: frozenset[str]) -> None:
        self._text = text
        self._lists = lists
        self._index = 0
        self._decode = json.JSONDecoder(
            parse_float=decimal, parse_int=integer, parse_constant=_constant
        ).raw_decode

    def run(self) -> Iterator[Record | Broken]:
        text = self._text
        while first := text.peek():
            line, before = text.line(), self._index
            if first not in "[{":
                self._index += 1
                yield Broken(text.readline() or "", line, self._index)
                continue
            try:
                if first == "[":
                    yield from self._elements({})
                else:
                    yield from self._object(line)
            except _Malformed as error:
                if first == "[" or self._index > before:
                    raise self._error(error) from error
                yield self._skipped(line, error)

    def _object(self, line: int) -> Iterator[Record]:
        """A top-level object: a record, or what holds a list of them."""
        text = self._text
        whole = self._whole_object()
        if whole is not None:
            value, end = whole
            if not any(isinstance(value.get(name), list) for name in self._lists):
                text.at = end
                yield self._record(value, line, {})
                return
        text.at += 1
        members: dict[str, Any] = {}
        held = False
        for _ in self._separated("}"):
            if text.peek() != '"':
                raise _Malformed("a key should stand here")
            key = self._value()
            if text.peek() != ":":
                raise _Malformed("a colon should stand here")
            text.at += 1
            if key in self._lists and text.peek() == "[":
                held = True
                yield from self._elements(members)
            else:
                members[key] = self._value()
            if len(members) > MAX_MEMBERS:
                raise _Malformed(f"an object of more than {MAX_MEMBERS:,} members is no record")
        if not held:
            yield self._record(members, line, {})

    def _whole_object(self) -> tuple[dict[str, Any], int] | None:
        """The object and where it ends, if the buffer holds all of it."""
        try:
            value, end = self._decode(self._text.buffer, self._text.at)
        except (json.JSONDecodeError, RecursionError):
            return None
        return value, end

    def _elements(self, around: dict[str, Any]) -> Iterator[Record]:
        self._text.at += 1
        for _ in self._separated("]"):
            line = self._text.line()
            yield self._record(self._value(), line, dict(around))

    def _separated(self, closing: str) -> Iterator[None]:
        """Stops before each element of a list or object, and ends behind its end."""
        text = self._text
        first = True
        while (char := text.peek()) != closing or not first:
            if char == closing:
                break
            if not first:
                if char != ",":
                    raise _Malformed(f"a comma or {closing!r} should stand here")
                text.at += 1
                text.peek()
            first = False
            yield
        text.at += 1

    def _value(self) -> Any:
        """The next value, however long, up to the bound."""
        text = self._text
        text.peek()
        while True:
            length = len(text.buffer) - text.at
            try:
                value, end = self._decode(text.buffer, text.at)
            except RecursionError as error:
                raise _Malformed("values are nested too deep") from error
            except json.JSONDecodeError as error:
                open_string = error.msg.startswith("Unterminated string")
                mistake = not open_string and error.pos < len(text.buffer) - _TOKEN_CHARS
                tail = text.buffer[error.pos :]
                if length > MAX_RECORD_CHARS:
                    reason = f"nothing ends within {MAX_RECORD_CHARS >> 20} Mi characters"
                    raise _Malformed(reason) from error
                if mistake:
                    raise _Malformed(error.msg) from error
                if not text.more():
                    cut = open_string or _CUT_TOKEN.fullmatch(tail)
                    raise (_CutOff if cut else _Malformed)(error.msg) from error
                continue
            # A number that touches the end of what was read may go on behind it.
            used = end - text.at
            is_number = text.buffer[end - 1].isdigit()  # all other values end otherwise
            if is_number and _NUMBER_TAIL.match(text.buffer, end) and text.more():
                continue
            text.at += used
            return value

    def _record(self, value: Any, line: int, around: dict[str, Any]) -> Record:
        self._index += 1
        return Record(value, line, self._index, around)

    def _skipped(self, line: int, error: _Malformed) -> Broken:
        """A line that is no JSON, passed over so that the next record can be read.

        Raises:
            UnciaError: the next record cannot be found.
        """
        text = self._text
        char = text.peek()
        if isinstance(error, _CutOff) or not char:
            raise self._error(error) from error
        rest = ""
        if text.line() == line:
            rest = text.readline() or ""
            if text.peek() in _WITHIN_JSON:
                raise self._error(error) from error
        elif char != "{":
            raise self._error(error) from error
        self._index += 1
        return Broken(rest, line, self._index)

    def _error(self, what: _Malformed) -> UnciaError:
        text = self._text
        if isinstance(what, _CutOff) or not text.peek():
            return UnciaError(
                f"{text.path} is cut off: its JSON ends within record {self._index + 1:,}, in line"
                f" {text.line():,}",
                hint="Fetch or copy the file again.",
            )
        near = text.buffer[text.at : text.at + _SHOWN_AROUND]
        return UnciaError(
            f"{text.path}, line {text.line():,}, record {self._index + 1:,} is no JSON:"
            f" {what}: {shown(near)}"
        )


def decimal(text: str) -> Decimal | str:
    """A number with a fraction or an exponent; its text if the exponent has some 19 digits.

    Readers of values refuse that text as no such quantity, as they do any other.
    """
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


def integer(text: str) -> int | Decimal:
    """A whole number; one of a hundred digits or more is left a decimal, which costs no time."""
    return int(text) if len(text) < _MAX_INTEGER_CHARS else Decimal(text)


def _constant(text: str) -> str | None:
    """What pandas and others write where JSON has no number: NaN is no data."""
    return None if text == "NaN" else text
