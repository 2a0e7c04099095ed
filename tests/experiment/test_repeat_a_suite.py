"""The page on histories: its commands, on a suite that is carried out on the embedded platform."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "suites"))
sys.path.append(str(Path(__file__).parents[1] / "docs"))

from suite_rows import claim, suite

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "repeat-a-suite.md"


@pytest.mark.skipif(os.name != "posix", reason="the platform needs Linux")
def test_a_suite_is_repeated_and_drawn(tmp_path: Path) -> None:
    suite(tmp_path / "mine", {"slow": claim("fast.p50 > 0.001ms")})
    first, second = [
        line for line in PAGE.read_text().splitlines() if line.startswith("uncia suite ")
    ]

    def uncia(line: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", *line.split(), *more]
        return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)

    done = uncia(first)
    assert done.returncode == 0, done.stderr
    # A count decides by its value, so that a single time can violate this: the first start is cold.
    command = "cat > regression.json"
    done = uncia(first, "--fail-on", "cold>0", "--on-regression", command)
    assert done.returncode == 1, done.stderr
    assert "cold>0: fig1.fast.cold" in done.stdout
    result = json.loads((tmp_path / "regression.json").read_text())
    assert [item["verdict"] for item in result["verdicts"]] == ["violated"]

    done = uncia(second)
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "site" / "index.html").read_text()
    names = sorted(path.name for path in (tmp_path / "history").glob("00*"))
    assert [name[:6] for name in names] == ["000001", "000002"]
    assert all(f"../history/{name}/report.html" in html for name in names)
    assert result["name"] == names[1]
