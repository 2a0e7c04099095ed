"""Pickles read as data: nothing that a pickle names is imported, called or given a state.

A pickle is a program for a small machine that may call any function. Here the machine does not:
what would call or construct becomes a `Built`, a note of what should have been called with what,
and the reader of a file looks for those forms that it knows. A pickle may name no other globals
than those that its reader lists; any other is an error that says which. So reading one cannot run
code, import a module, nor reach a native library with what the file holds.

Long lists of numbers, which are most of a trace, become arrays as they are read; with a folder to
spill to, they wait on disk.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

CHUNK_BYTES: Final = 1 << 20
"""What is read at once."""

MAX_BYTES: Final = 1 << 31
"""Longest text or block of bytes within a pickle."""

_MIN_BATCH_BYTES: Final = 64  # shorter batches are read one by one
_MAX_NAME: Final = 1000
_STOP: Final = ord(".")
_MAX_STACK: Final = 100_000  # values and marks that wait to be put together
_MAX_TUPLES: Final = 10_000  # within a tuple, each as often as it is there
_HIGHEST: Final = 5
_BATCH_BYTES: Final = 9_020  # a list's items come in batches of 1000, the longest a float of 9
_FLOAT: Final = ord("G")
_BYTE, _SHORT, _INTEGER = b"KMJ"
_KINDS: Final = {_FLOAT: ">f8", _BYTE: "u1", _SHORT: "<u2", _INTEGER: "<i4"}
_LONG_GET: Final = ord("j")
_FRAME: Final = 0x95
# A batch of numbers, or of references to texts, which then goes into a list as it is. A frame may
# begin within, which says only how the bytes were grouped.
_NUMBERS: Final = re.compile(rb"(?:G.{8}|K.|M.{2}|J.{4}|\x95.{8})++(?=e)", re.DOTALL)
_REFERENCES: Final = re.compile(rb"(?:j.{4}|h.|\x95.{8})++(?=e)", re.DOTALL)

Global: TypeAlias = tuple[str, str]
Numbers: TypeAlias = npt.NDArray[np.float64]


@dataclass(eq=False)
class Built:
    """What the pickle would have called.

    Attributes:
        name: module and name of what it would call.
        arguments: with what.
        state: what it would have given the result with ``__setstate__`` or as attributes.
    """

    name: Global
    arguments: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True)
class Name:
    """A global that the pickle names, and may."""

    name: Global


class Spill:
    """A file of numbers and bytes that wait until they are asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("w+b")
        self.end = 0

    def keep(self, data: bytes) -> int:
        """Write the data; returns where it stands."""
        self._file.seek(self.end)
        self._file.write(data)
        at, self.end = self.end, self.end + len(data)
        return at

    def read(self, at: int, size: int) -> bytes:
        """What stands there."""
        self._file.seek(at)
        return self._file.read(size)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()
        self._path.unlink(missing_ok=True)


@dataclass
class Kept:
    """Numbers or bytes in a `Spill`.

    Attributes:
        spill: the file.
        at: where they begin.
        size: how many bytes.
        texts: if given, the numbers are positions in it.
    """

    spill: Spill
    at: int
    size: int
    texts: list[str] | None = None

    def __len__(self) -> int:
        return self.size // 8

    def bytes(self) -> bytes:
        """The bytes themselves."""
        return self.spill.read(self.at, self.size)

    def values(self, start: int, stop: int) -> Numbers:
        """Some of the numbers, shape (stop - start,)."""
        return np.frombuffer(self.spill.read(self.at + 8 * start, 8 * (stop - start)), np.float64)


class Items:
    """A list of the pickle, in parts: values as they are, and what waits in a spill."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[list[Any] | Kept] = []

    def __len__(self) -> int:
        return sum(len(part) for part in self.parts)

    def extend(self, items: list[Any]) -> None:
        """Append values, `Kept` ones as what they hold."""
        for item in items:
            if isinstance(item, _Batch):
                last = self.parts[-1] if self.parts else None
                kept = item.kept
                if (
                    isinstance(last, Kept)
                    and last.texts is kept.texts
                    and last.at + last.size == kept.at
                ):
                    last.size += kept.size
                else:
                    self.parts.append(kept)
            elif self.parts and isinstance(self.parts[-1], list):
                self.parts[-1].append(item)
            else:
                self.parts.append([item])

    def values(self) -> list[Any]:
        """The items one by one; for lists that are short."""
        items: list[Any] = []
        for part in self.parts:
            if isinstance(part, list):
                items += part
            else:
                numbers = part.values(0, len(part)).tolist()
                texts = part.texts
                items += numbers if texts is None else [texts[int(index)] for index in numbers]
        return items


@dataclass
class _Batch:
    kept: Kept


class _Mark:
    """Where the items of a list, tuple or dictionary begin on the stack."""


_MARK: Final = _Mark()


class Refused(Exception):
    """The pickle does what no file of data does; says what."""


class CutOff(Exception):
    """The file ends before the pickle does."""


@contextmanager
def refusing() -> Iterator[None]:
    """Refuses data of which Python or numpy cannot make what it should be.

    Raises:
        Refused: they cannot.
    """
    try:
        yield
    except (
        TypeError,
        ValueError,
        OverflowError,
        SystemError,
        RecursionError,
        MemoryError,
    ) as error:
        raise Refused("it holds data of another form than pandas and numpy give it") from error


def load(
    file: IO[bytes],
    allowed: Collection[Global],
    spill: Spill,
    plain: Callable[[Built], Any] = lambda built: built,
) -> Any:
    """The data of a pickle of protocol 2 to 5.

    Lists come as `Items`, what would be called as `Built`, long bytes as `Kept`; all else is plain.

    Args:
        file: the pickle, unpacked.
        allowed: the globals that it may name.
        spill: where long lists of numbers wait.
        plain: makes a value of what would be called, where it can.

    Raises:
        Refused: the pickle names another global, or is no such pickle.
        CutOff: it ends too early.
    """
    return _Machine(file, frozenset(allowed), spill, plain).run()


class _Machine:
    def __init__(
        self,
        file: IO[bytes],
        allowed: frozenset[Global],
        spill: Spill,
        plain: Callable[[Built], Any],
    ) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0
        self._before = 0  # bytes of the file before the buffer
        self._allowed = allowed
        self._spill = spill
        self._plain = plain
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._texts: list[str] = []
        self._codes: dict[int, int] = {}  # memo index -> position in _texts
        # Tuples that hold tuples: of how many each is made. They are kept, so that an id is theirs.
        self._nested: dict[int, tuple[int, tuple[Any, ...]]] = {}

    def run(self) -> Any:
        if self._take(1) != b"\x80":
            raise Refused("it is no pickle of protocol 2 or later")
        if not 2 <= self._take(1)[0] <= _HIGHEST:
            raise Refused("it is of another protocol than 2 to 5")
        while True:
            opcode = self._take(1)[0]
            if opcode == _STOP:
                return self._pop()
            act = _ACTS.get(opcode)
            if act is None:
                raise Refused(f"it uses the opcode {bytes([opcode])!r}, which no such file needs")
            act(self)
            if len(self._stack) > _MAX_STACK:
                raise Refused("its values are nested too deep")

    # Reading.

    def place(self) -> int:
        """Bytes read so far."""
        return self._before + self._at

    def _fill(self, size: int) -> bool:
        """Have so many bytes in the buffer, if the file has them."""
        while len(self._buffer) - self._at < size:
            data = self._file.read(max(CHUNK_BYTES, 0))
            if not data:
                return False
            used = max(self._at - 1, 0)  # the opcode before is read again
            self._before += used
            self._buffer = self._buffer[used:] + data
            self._at -= used
        return True

    def _take(self, size: int) -> bytes:
        if size <= CHUNK_BYTES:
            if not self._fill(size):
                raise CutOff(self._before + len(self._buffer))
            data = self._buffer[self._at : self._at + size]
            self._at += size
            return data
        if size > MAX_BYTES:
            raise Refused(f"it holds a value of {size:,} bytes")
        pieces = []
        while size > 0:
            pieces.append(self._take(min(size, CHUNK_BYTES)))
            size -= len(pieces[-1])
        return b"".join(pieces)

    def _size(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _line(self) -> str:
        line = bytearray()
        while (byte := self._take(1)) != b"\n":
            line += byte
            if len(line) > _MAX_NAME:
                raise Refused("it names a global of more than a thousand characters")
        return line.decode("utf-8", "replace")

    # The stack.

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise Refused("it takes a value where there is none")
        return self._stack.pop()

    def _since_mark(self) -> list[Any]:
        for index in range(len(self._stack) - 1, -1, -1):
            if self._stack[index] is _MARK:
                items = self._stack[index + 1 :]
                del self._stack[index:]
                return items
        raise Refused("it takes values since a mark where there is none")

    def _top(self) -> Any:
        if not self._stack:
            raise Refused("it takes a value where there is none")
        return self._stack[-1]

    # The opcodes; each is named after what it is in pickle.

    def number(self) -> None:
        opcode = self._buffer[self._at - 1]
        if self._stack and self._stack[-1] is _MARK and self._batch(_NUMBERS):
            return
        if opcode == _FLOAT:
            self._push(struct.unpack(">d", self._take(8))[0])
        else:
            width = np.dtype(_KINDS[opcode]).itemsize
            self._push(int.from_bytes(self._take(width), "little", signed=opcode == _INTEGER))

    def reference(self) -> None:
        opcode = self._buffer[self._at - 1]
        if self._stack and self._stack[-1] is _MARK and self._batch(_REFERENCES):
            return
        self._push(self._remembered(self._size(1 if opcode == ord("h") else 4)))

    def _batch(self, pattern: re.Pattern[bytes]) -> bool:
        """Take a whole batch of a list at once; whether it was one that can be."""
        self._fill(_BATCH_BYTES)
        match = pattern.match(self._buffer, self._at - 1)
        if match is None or len(match.group()) < _MIN_BATCH_BYTES:
            return False
        if pattern is _NUMBERS:
            numbers, texts = _parsed(match.group()), None
        else:
            indices, places = np.unique(_indices(match.group()), return_inverse=True)
            codes = [self._code(index) for index in indices.tolist()]
            if None in codes:
                return False
            numbers, texts = np.array(codes, np.float64)[places], self._texts
        self._at = match.end()
        at = self._spill.keep(numbers.tobytes())
        self._push(_Batch(Kept(self._spill, at, numbers.nbytes, texts)))
        return True

    def _code(self, index: int) -> int | None:
        if index not in self._codes:
            text = self._memo.get(index)
            if not isinstance(text, str):
                return None
            self._codes[index] = len(self._texts)
            self._texts.append(text)
        return self._codes[index]

    def _remembered(self, index: int) -> Any:
        if index not in self._memo:
            raise Refused("it refers to a value that was not there before")
        return self._memo[index]

    def long1(self) -> None:
        self._push(int.from_bytes(self._take(self._size(1)), "little", signed=True))

    def text(self, width: int) -> None:
        try:
            # Lone surrogates, which a pickle may have, are no text that a table could hold.
            self._push(self._take(self._size(width)).decode("utf-8"))
        except UnicodeDecodeError as error:
            raise Refused("it holds a text that is no UTF-8") from error

    def data(self, width: int) -> None:
        size = self._size(width)
        if size <= CHUNK_BYTES:
            self._push(self._take(size))
            return
        at = self._spill.end
        for start in range(0, size, CHUNK_BYTES):
            self._spill.keep(self._take(min(CHUNK_BYTES, size - start)))
        self._push(Kept(self._spill, at, size))

    def append(self) -> None:
        item = self._pop()
        self._list(self._top()).extend([item])

    def appends(self) -> None:
        items = self._since_mark()
        self._list(self._top()).extend(items)

    def _list(self, value: Any) -> Items:
        if not isinstance(value, Items):
            raise Refused("it appends to what is no list")
        return value

    def setitems(self, pairs: list[Any]) -> None:
        target = self._top()
        if not isinstance(target, dict) or len(pairs) % 2:
            raise Refused("it sets items of what is no dictionary")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, str | int | float | bytes | type(None)):
                raise Refused("it holds a dictionary whose keys are no text")
            target[key] = value

    def setitem(self) -> None:
        value, key = self._pop(), self._pop()
        self.setitems([key, value])

    def tuple_of(self, size: int) -> None:
        items = [self._pop() for _ in range(size)]
        self.tuple_(items[::-1])

    def tuple_(self, items: list[Any]) -> None:
        made = tuple(items)
        inner = [self._nested.get(id(it), (1,))[0] for it in made if isinstance(it, tuple)]
        if inner:
            # Few opcodes make one that is nested a million times, or that would fill the memory if
            # it was written out; what hashes or shows it would be at the end of its stack, or time.
            count = 1 + sum(inner)
            if count > _MAX_TUPLES:
                raise Refused("its values are nested too deep")
            self._nested[id(made)] = count, made
        self._push(made)

    def put(self, index: int) -> None:
        self._memo[index] = self._top()

    def global_(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Refused("it names a global by what is no text")
        if (module, name) not in self._allowed:
            raise Refused(f"it names the global {module}.{name}, which no such file needs")
        self._push(Name((module, name)))

    def stack_global(self) -> None:
        name, module = self._pop(), self._pop()
        self.global_(module, name)

    def reduce(self) -> None:
        arguments, called = self._pop(), self._pop()
        if not isinstance(called, Name) or not isinstance(arguments, tuple):
            raise Refused("it calls what is no global")
        self._push(self._plain(Built(called.name, arguments)))

    def build(self) -> None:
        state, built = self._pop(), self._top()
        if not isinstance(built, Built):
            raise Refused("it gives a state to what takes none")
        built.state = state


def _parsed(batch: bytes) -> Numbers:
    """The numbers of a batch of opcodes, each with its value."""
    for opcode, kind in _KINDS.items():
        size = 1 + np.dtype(kind).itemsize
        if batch[0] == opcode and len(batch) % size == 0:
            table = np.frombuffer(batch, np.uint8).reshape(-1, size)
            same = table[:, 0] == opcode
            if (same if size < 9 else same | (table[:, 0] == _FRAME)).all():
                return table[same, 1:].copy().view(kind).ravel().astype(np.float64)
    numbers: list[float] = []
    at = 0
    while at < len(batch):
        opcode = batch[at]
        if opcode == _FLOAT:
            numbers.append(struct.unpack_from(">d", batch, at + 1)[0])
            at += 9
        elif opcode == _BYTE:
            numbers.append(batch[at + 1])
            at += 2
        elif opcode == _SHORT:
            numbers.append(batch[at + 1] | batch[at + 2] << 8)
            at += 3
        elif opcode == _FRAME:
            at += 9
        else:
            numbers.append(struct.unpack_from("<i", batch, at + 1)[0])
            at += 5
    return np.array(numbers, np.float64)


def _indices(batch: bytes) -> npt.NDArray[np.int64]:
    """The positions in the memo that a batch refers to."""
    if len(batch) % 5 == 0:
        table = np.frombuffer(batch, np.uint8).reshape(-1, 5)
        if (table[:, 0] == _LONG_GET).all():
            return table[:, 1:].copy().view("<u4").ravel().astype(np.int64)
    indices: list[int] = []
    at = 0
    while at < len(batch):
        opcode = batch[at]
        if opcode == _LONG_GET:
            indices.append(struct.unpack_from("<I", batch, at + 1)[0])
            at += 5
        elif opcode == _FRAME:
            at += 9
        else:
            indices.append(batch[at + 1])
            at += 2
    return np.array(indices, np.int64)


_ACTS: Final[dict[int, Callable[[_Machine], None]]] = {
    _FRAME: lambda m: void(m._take(8)),
    ord("("): lambda m: m._push(_MARK),
    ord("0"): lambda m: void(m._pop()),
    ord("1"): lambda m: void(m._since_mark()),
    ord("N"): lambda m: m._push(None),
    0x88: lambda m: m._push(True),
    0x89: lambda m: m._push(False),
    **dict.fromkeys(b"GKMJ", _Machine.number),
    **dict.fromkeys(b"hj", _Machine.reference),
    0x8A: _Machine.long1,
    ord("X"): lambda m: m.text(4),
    0x8C: lambda m: m.text(1),
    0x8D: lambda m: m.text(8),
    ord("T"): lambda m: m.data(4),
    ord("U"): lambda m: m.data(1),
    ord("B"): lambda m: m.data(4),
    ord("C"): lambda m: m.data(1),
    0x8E: lambda m: m.data(8),
    0x96: lambda m: m.data(8),
    ord("]"): lambda m: m._push(Items()),
    ord("a"): _Machine.append,
    ord("e"): _Machine.appends,
    ord(")"): lambda m: m._push(()),
    ord("t"): lambda m: m.tuple_(m._since_mark()),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("}"): lambda m: m._push({}),
    ord("s"): _Machine.setitem,
    ord("u"): lambda m: m.setitems(m._since_mark()),
    ord("q"): lambda m: m.put(m._size(1)),
    ord("r"): lambda m: m.put(m._size(4)),
    0x94: lambda m: m.put(len(m._memo)),
    ord("c"): lambda m: m.global_(m._line(), m._line()),
    ord("i"): lambda m: m.global_(m._line(), m._line()),
    0x93: _Machine.stack_global,
    ord("R"): _Machine.reduce,
    0x81: _Machine.reduce,  # NEWOBJ: a class and its arguments
    ord("b"): _Machine.build,
}


def void(_: object) -> None:
    """Drop a value."""
