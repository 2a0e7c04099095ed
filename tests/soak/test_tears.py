"""What the soak cuts off is only what a power failure may take."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from .tears import cut

_FILES = ("log.sqlite", "log.sqlite-wal", "log.sqlite-shm")


def _change(log: sqlite3.Connection, chosen: random.Random) -> None:
    """One transaction that changes pages all over the file."""
    for _ in range(chosen.randint(1, 20)):
        key = chosen.randrange(2_000)
        log.execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", (key, chosen.randbytes(200)))
    log.execute("DELETE FROM rows WHERE key % 97 = ?", (chosen.randrange(97),))
    log.commit()


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_log_leaves_a_whole_database(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    with closing(sqlite3.connect(tmp_path / _FILES[0])) as log:
        log.execute("PRAGMA journal_mode = WAL")
        log.execute("PRAGMA synchronous = NORMAL")
        log.execute("PRAGMA wal_autocheckpoint = 50")
        log.execute("CREATE TABLE rows (key INTEGER PRIMARY KEY, bytes BLOB)")
        log.execute("CREATE INDEX by_bytes ON rows (bytes)")
        log.commit()
        for crash in range(8):
            for _ in range(chosen.randint(1, 12)):
                _change(log, chosen)
            after = tmp_path / str(crash)
            after.mkdir()
            for name in _FILES:
                shutil.copy(tmp_path / name, after / name)
            size = (after / _FILES[1]).stat().st_size
            assert cut(after / _FILES[1], chosen) == ((after / _FILES[1]).stat().st_size < size)
            with closing(sqlite3.connect(after / _FILES[0])) as left:
                assert left.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_missing_or_empty_file_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000001.records"
    assert not cut(path, random.Random(1))
    path.touch()
    assert not cut(path, random.Random(1))
    path.write_bytes(b"record")
    assert cut(path, random.Random(1))
    assert path.stat().st_size < 6
