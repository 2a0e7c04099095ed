"""Images of functions: roots from Debian packages, and code laid over a root."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from uncia.cli import build
from uncia.errors import UnciaError
from uncia.functions.images import (
    Execution,
    Image,
    Layer,
    debian,
    lay_over,
    read_image,
    write_image,
)
from uncia.layouts import LayerWriter

ROOT = Execution(("/bin/sh",), (), {"PATH": "/usr/bin", "LANG": "C.UTF-8"})


def root(folder: Path, *programs: str) -> Image:
    """A layout whose image has files of these names."""
    archive = folder / "archive"
    with archive.open("wb") as file, LayerWriter(file) as writer:
        for program in programs:
            writer.add_bytes(f"usr/bin/{program}", b"#!/bin/sh\n", 0o755)
    return write_image(folder / "root", [Layer(archive)], ROOT)


def refusal(*arguments: str) -> UnciaError:
    result = CliRunner().invoke(build(), ["functions", *arguments])
    assert isinstance(result.exception, UnciaError), result.output
    return result.exception


def test_code_is_a_layer_above_the_root_s(tmp_path: Path) -> None:
    base = root(tmp_path, "python3")
    out = tmp_path / "image"
    command = ["functions", "image", "hello", "--root", f"{base.folder}:latest", "--out", str(out)]
    result = CliRunner().invoke(build(), command)
    assert result.exit_code == 0, result.output
    image = read_image(out)
    assert f"image: oci:{out}" in result.output
    assert f"digest: {image.digest}" in result.output
    assert image.execution == Execution(
        ("python3", "-u", "/var/runtime/bootstrap.py"),
        ("handler.handler",),
        ROOT.environment,
        "/var/task",
    )
    lower, upper = image.layers
    assert lower.path.samefile(base.layers[0].path)
    with tarfile.open(upper.path) as archive:
        names = archive.getnames()
        assert names[:3] == ["var", "var/task", "var/task/handler.py"]
        assert "var/runtime/bootstrap.py" in names
        assert {(entry.uid, entry.mtime) for entry in archive} == {(0, 315_532_800)}
    again = lay_over("hello", base.folder, tmp_path / "again", filler=1_000)
    same = lay_over("hello", base.folder, tmp_path / "same")
    assert same.digest == image.digest != again.digest
    # What the specification asks of a layout, in its own words.
    assert json.loads((out / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((out / "index.json").read_text())
    assert index["schemaVersion"] == 2
    assert index["manifests"][0]["digest"] == image.digest


def test_a_function_with_its_own_program_needs_no_interpreter(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler to make the function with")
    base = root(tmp_path)
    image = lay_over("throttle", base.folder, tmp_path / "image", "provided")
    assert image.execution.entry_point == ("/var/task/bootstrap",)
    with tarfile.open(image.layers[1].path) as archive:
        assert archive.getmember("var/task/bootstrap").mode == 0o755


def test_what_cannot_be_laid_over_is_a_sentence(tmp_path: Path) -> None:
    base = root(tmp_path, "perl")
    out = str(tmp_path / "image")
    error = refusal("image", "hello", "--root", str(base.folder), "--out", out)
    assert "has no python3" in error.message
    assert "uncia functions root python3" in str(error.hint)
    error = refusal("image", "hello", "--root", f"{base.folder}:other", "--out", out)
    assert "has no image other; it has latest" in error.message
    error = refusal("image", "hello", "--root", str(tmp_path), "--out", out)
    assert "is no OCI image layout" in error.message
    (tmp_path / "taken").mkdir()
    fine = root(tmp_path / "taken", "python3")
    taken = str(tmp_path / "taken")
    error = refusal("image", "hello", "--root", str(fine.folder), "--out", taken)
    assert "exists already" in error.message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "root", "taken"]


def test_roots_that_cannot_be_made_are_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "root")
    assert "is not the name" in refusal("root", "Python!", "--out", out).message
    assert "is not the name" in refusal("root", "gcc", "--suite", "../x", "--out", out).message
    monkeypatch.setenv("PATH", str(tmp_path))
    error = refusal("root", "gcc", "--suite", "bookworm", "--out", out)
    assert "mmdebstrap is not installed" in error.message
    assert error.hint == "Install it: apt-get install mmdebstrap"
    assert not Path(out).exists()


def test_a_root_comes_from_the_sources_of_this_machine_s_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = tmp_path / "apt"
    (apt / "sources.list.d").mkdir(parents=True)
    listed = apt / "sources.list.d"
    (listed / "debian.sources").write_text("URIs: http://x\nSuites: bookworm bookworm-updates\n")
    (listed / "other.sources").write_text("URIs: http://y\nSuites: nodistro\n")
    (listed / "off.list.disabled").write_text("deb http://z bookworm main\n")
    (apt / "sources.list").write_text("deb http://security bookworm-security main\n")
    monkeypatch.setattr(debian, "SOURCES", apt)
    copies = debian._sources(tmp_path, "bookworm", "trixie")
    assert [copy.read_text() for copy in copies] == [
        "deb http://security trixie-security main\n",
        "URIs: http://x\nSuites: trixie trixie-updates\n",
    ]
    assert [copy.suffix for copy in copies] == [".list", ".sources"]
    with pytest.raises(UnciaError, match="apt has no sources of sid"):
        debian._sources(tmp_path, "sid", "sid")
    command = debian._command(["gcc", "ffmpeg"], "trixie", tmp_path / "a", copies)
    assert "--include=gcc,ffmpeg" in command
    assert command[-4:] == ["trixie", str(tmp_path / "a"), *map(str, copies)]


def test_a_root_that_apt_cannot_make_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed")
    apt = tmp_path / "apt"
    apt.mkdir()
    (apt / "sources.list").write_text("deb file:/nonexistent bookworm main\n")
    monkeypatch.setattr(debian, "SOURCES", apt)
    monkeypatch.setattr(debian, "machine_suite", lambda: "bookworm")
    with pytest.raises(UnciaError, match="mmdebstrap could not make a root of bookworm"):
        debian.make_root(["gcc"], tmp_path / "root")
    assert [path.name for path in tmp_path.iterdir()] == ["apt"]
