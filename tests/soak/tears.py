"""Files cut off as a power failure may leave them: what was never asked to be on disk is gone."""

import random
import struct
from pathlib import Path

# https://www.sqlite.org/walformat.html: the log's header and a frame's, before each page.
_LOG_HEADER = 32
_FRAME_HEADER = 24
_SALTS_IN_LOG = slice(16, 24)
# In the index beside it: the size of a page, the salts of the log, frames a checkpoint began with.
_PAGE_SIZE_AT = 14
_SALTS_IN_INDEX = slice(32, 40)
_CHECKPOINTED_AT = 128


def cut(path: Path, chosen: random.Random) -> bool:
    """Cut the file anywhere after what must be on disk; false if there is nothing to cut."""
    size = path.stat().st_size if path.exists() else 0
    least = _synchronized(path, size) if path.name.endswith("-wal") else 0
    if least >= size:
        return False
    with path.open("r+b") as file:
        file.truncate(chosen.randrange(least, size))
    return True


def _synchronized(log: Path, size: int) -> int:
    """Bytes of a write-ahead log that SQLite had on disk before it changed the database after them.

    Without those a database is damaged: some pages are newer than what the log says of others.
    """
    index_path = log.with_name(log.name.removesuffix("-wal") + "-shm")
    index = index_path.read_bytes() if index_path.exists() else b""
    if len(index) <= _CHECKPOINTED_AT:
        return size
    with log.open("rb") as file:
        header = file.read(_LOG_HEADER)
    # The log was about to start again from its beginning: all of it is in the database.
    if header[_SALTS_IN_LOG] != index[_SALTS_IN_INDEX]:
        return size
    (page,) = struct.unpack_from("=H", index, _PAGE_SIZE_AT)
    (frames,) = struct.unpack_from("=I", index, _CHECKPOINTED_AT)
    # 65,536 does not fit.
    page = 65_536 if page == 1 else page
    return _LOG_HEADER + frames * (_FRAME_HEADER + page) if frames else 0
