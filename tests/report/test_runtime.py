"""The script of the charts: bundled once, and never taken from a file that is not whole."""

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import vl_convert

from uncia.report import runtime

BUNDLE = "window.vegaEmbed = '</script é';"


@pytest.fixture
def bundled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The arguments of each bundling; none is kept yet."""
    made: list[str] = []

    def bundle(*arguments: Any) -> str:
        made.append(str(arguments))
        return BUNDLE

    monkeypatch.setattr(vl_convert, "javascript_bundle", bundle)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def script() -> str:
    """The script as another process would get it."""
    runtime.script.cache_clear()
    try:
        return runtime.script()
    finally:
        runtime.script.cache_clear()


def kept(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "cache" / "uncia" / "charts").glob("*.js")
    return path


def test_a_second_process_does_not_bundle_again(bundled: list[str], tmp_path: Path) -> None:
    assert script() == script() == "window.vegaEmbed = '<\\/script é';"
    assert len(bundled) == 1
    assert metadata.version("vl-convert-python") in kept(tmp_path).name


@pytest.mark.parametrize("damage", ["", "x", BUNDLE, "0" * 64 + "\n" + BUNDLE])
def test_a_damaged_file_is_made_anew(bundled: list[str], tmp_path: Path, damage: str) -> None:
    first = script()
    whole = kept(tmp_path).read_bytes()
    kept(tmp_path).write_text(damage, encoding="utf-8")
    assert script() == first
    assert kept(tmp_path).read_bytes() == whole
    assert len(bundled) == 2


def test_without_a_cache_folder_it_is_bundled_each_time(bundled: list[str], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    assert script() == script()
    assert len(bundled) == 2


def test_without_a_home_it_is_bundled_each_time(
    bundled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", home)
    assert script() == script()
    assert len(bundled) == 2
