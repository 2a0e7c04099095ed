"""``uncia cpu infer``: JSON, text, a page, and what it refuses."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

PUBLISHED = Path(__file__).parent.parent / "data" / "infer"
LOCAL = str(PUBLISHED / "eevdf-250hz-20ms-1.447ms.json.gz")
GCP = str(PUBLISHED / "gcp-0.08vcpu.json.gz")

Uncia = Callable[..., "subprocess.Popen[str]"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(command: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``uncia cpu infer`` in this process: (exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "120")
    return lambda *arguments: command("cpu", "infer", *arguments)


def without_throttles(folder: Path) -> str:
    """A profile whose one run saw no gap."""
    path = folder / "none.json"
    data = {"data": [], "t0": 10**12, "iteration_counter": 1000}
    row = {"invocation_timestamp": 1.7e9, "duration": 10.0, "status_code": 200, "data": data}
    path.write_text(json.dumps([row]))
    return str(path)


def test_json_of_one_profile_is_an_object(run: Run) -> None:
    code, out, err = run(LOCAL, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert (result["period_us"], result["hz"], result["scheduler"]) == (20_000, 250, "eevdf")
    assert abs(result["quota_us"] / 1_447 - 1) < 0.05
    assert set(result["confidence"]) == {"period_us", "quota_us", "hz", "scheduler"}
    assert result["notes"]


def test_text_says_what_cannot_be_told(uncia: Uncia) -> None:
    process = uncia("cpu", "infer", GCP)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "100 ms" in out
    assert "scheduler  cannot tell" in out


def test_several_profiles_and_a_page(run: Run, tmp_path: Path) -> None:
    empty = without_throttles(tmp_path)
    page = tmp_path / "infer.html"
    code, out, err = run(LOCAL, empty, "--json", "--html", str(page))
    assert code == 0, err
    assert [item["profile"] for item in json.loads(out)] == [LOCAL, empty]
    text = page.read_text()
    assert "EEVDF 250 Hz P20" in text
    assert "simulated setting" in text
    assert "no gap" in text


def test_a_profile_without_throttles_is_no_error(run: Run, tmp_path: Path) -> None:
    code, out, err = run(without_throttles(tmp_path), "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["period_us"] is None
    assert any("no gap" in note for note in result["notes"])


def test_what_is_no_profile_is_refused(run: Run, tmp_path: Path) -> None:
    code, _, err = run(str(tmp_path / "absent.json"))
    assert code != 0
    assert "absent.json" in err
    code, _, err = run(LOCAL, "--unit", "days")
    assert code != 0
    assert "days" in err
