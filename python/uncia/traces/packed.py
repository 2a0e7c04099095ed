"""Files as they lie on the disk: plain, or compressed with gzip, whole or cut off."""

import zlib
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from uncia.errors import UnciaError

MAGIC: Final = b"\x1f\x8b"
"""The first bytes of a file that is compressed with gzip."""

_ARCHIVES: Final = (
    (b"PK\x03\x04", "a zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"BZh", "compressed with bzip2"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1", "an Arrow file"),
)

_GZIP_FORMAT: Final = 31  # zlib's number for: gzip's head and end mark, window of any size
_READ: Final = 1 << 20


def refuse_archive(path: Path, start: bytes) -> None:
    """Refuse a file whose first bytes are those of an archive or of another format.

    Raises:
        UnciaError: it is one; the message says which.
    """
    for first, name in _ARCHIVES:
        if start.startswith(first):
            raise UnciaError(f"{path} is {name}", hint="Unpack it first.")


class CutError(Exception):
    """A compressed file ends before its end mark.

    Attributes:
        rest: text before the cut that was not passed on yet.
    """

    def __init__(self, rest: bytes = b"") -> None:
        super().__init__("cut off")
        self.rest = rest


class DamagedError(Exception):
    """A compressed file holds what cannot be unpacked."""


class Bytes(Protocol):
    """The bytes of a file, from its beginning."""

    def read(self, size: int) -> bytes:
        """The next bytes, at most about ``size``; none at the end.

        Raises:
            CutError: the file ends too early.
            DamagedError: the file is damaged.
        """


class Plain:
    """A file that is not compressed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        """See `Bytes.read`."""
        return self._file.read(size)


class Gzip:
    """A file of gzip members, one after the other.

    The module `gzip` loses what it unpacked last when it meets a cut, and that counts here.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._packed = b""
        self._member = zlib.decompressobj(_GZIP_FORMAT)
        self._inside = False  # whether the member has begun

    def read(self, size: int) -> bytes:
        """See `Bytes.read`."""
        pieces: list[bytes] = []
        left = size
        while left > 0:
            if not self._packed:
                self._packed = self._file.read(_READ)
            ended = not self._packed
            if ended and not self._inside:
                break
            some = self._unpack(left)
            if ended and not some and self._inside:
                if pieces:  # what there is; the next call reports the cut
                    break
                raise CutError
            pieces.append(some)
            left -= len(some)
        return b"".join(pieces)

    def _unpack(self, size: int) -> bytes:
        if not self._inside:
            self._packed = self._packed.lstrip(b"\0")  # members may be padded
            if not self._packed:
                return b""
        self._inside = True
        try:
            text = self._member.decompress(self._packed, size)
        except zlib.error as error:
            raise DamagedError(str(error)) from error
        if self._member.eof:
            self._packed = self._member.unused_data
            self._member = zlib.decompressobj(_GZIP_FORMAT)
            self._inside = False
        else:
            self._packed = self._member.unconsumed_tail
        return text
