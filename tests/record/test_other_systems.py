"""What reads and writes tables runs on systems that are not Linux."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import uncia

# Modules of Unix, and names that only Unix has, hidden before anything is imported.
HIDDEN = """
import importlib.abc, os, signal, sys

class Hidden(importlib.abc.MetaPathFinder):
    NAMES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog"}

    def find_spec(self, name, path=None, target=None):
        if name in self.NAMES:
            raise ModuleNotFoundError(f"there is no {name} here", name=name)

for name in Hidden.NAMES:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Hidden())
for name in ("O_DIRECTORY", "O_NOFOLLOW", "geteuid", "getuid", "sched_getaffinity"):
    delattr(os, name)
del signal.SIGHUP, signal.SIGKILL
"""


def run(code: str, *arguments: Path, folder: Path) -> str:
    source = str(Path(uncia.__file__).resolve().parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", HIDDEN + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": source},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_every_module_can_be_imported(tmp_path: Path) -> None:
    code = """
import importlib, pkgutil
import uncia
missing = []
def failed(name):
    missing.append(name)
for info in pkgutil.walk_packages(uncia.__path__, "uncia.", onerror=failed):
    if info.name != "uncia.__main__":
        try:
            importlib.import_module(info.name)
        except Exception as error:
            missing.append(f"{info.name}: {error}")
print(chr(10).join(missing))
"""
    assert run(code, folder=tmp_path).split("\n") == ["", ""]


@pytest.mark.parametrize(
    "arguments",
    [
        ("trace", "import", "azure2021", "trace.csv", "--out", "out"),
        ("schema", "experiment"),
        ("load", "-h"),
    ],
)
def test_commands_that_only_read_and_write_tables_run(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "trace.csv").write_text("app,func,end_timestamp,duration\na,f,2.5,1.25\n")
    run(
        f"sys.argv = ['uncia', *{arguments!r}]\nfrom uncia.cli import main\nmain()", folder=tmp_path
    )
    assert ("import" not in arguments) or (tmp_path / "out" / "invocations.parquet").is_file()
