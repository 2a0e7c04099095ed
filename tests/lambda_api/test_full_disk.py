"""An answer is a promise that its row is on disk: while the disk is full there is none."""

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from .conftest import Serve
from .test_serving import log

SIZE = "2m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of some megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "uncia-test", folder]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder: Path) -> Path:
    """A file that leaves no room."""
    file = folder / "filler"
    with file.open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(bytes(4096))
    return file


def test_while_the_disk_is_full_no_invocation_is_answered(small_disk: Path, serve: Serve) -> None:
    first = serve()
    first.create("f")
    first.stop()
    shutil.move(first.state / "journal", small_disk / "journal")
    (first.state / "journal").symlink_to(small_disk / "journal")

    platform = serve()
    answered = [platform.headers("f")["x-amzn-requestid"]]
    filler = fill(small_disk)
    # What is left of the journal's last page takes some rows still.
    refused = []
    for _ in range(100):
        try:
            answered.append(platform.headers("f")["x-amzn-requestid"])
        except ClientError as error:
            refused.append(error.response)
        if len(refused) == 3:
            break
    assert len(refused) == 3
    for response in refused:
        assert response["ResponseMetadata"]["HTTPStatusCode"] == 500
        assert response["Error"]["Code"] == "ServiceException"
        message = response["Error"]["Message"]
        assert "ran, but could not be recorded" in message
        assert "the disk is full" in message
    assert [row["invocation"] for row in log(platform)] == answered

    filler.unlink()
    answered.append(platform.headers("f")["x-amzn-requestid"])
    assert [row["invocation"] for row in log(platform)] == answered
    # Nor does what was refused appear after a start that reads the journal.
    platform.stop(signal.SIGKILL)
    assert [row["invocation"] for row in log(serve())] == answered
