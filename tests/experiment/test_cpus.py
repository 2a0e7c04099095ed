"""CPUs in experiment files: those that are not there are told before anything runs."""

import os
from pathlib import Path
from typing import Any

import pytest

from uncia.errors import UnciaError
from uncia.experiment import cpus, files
from uncia.suites import lacking

FILE = """\
name: pinned
platform: {{kind: embedded{platform}}}
functions:
  hello: {{source: hello, cpus: "{cpus}"}}
experiments:
  only: {{function: hello, closed: {{clients: 1, requests: 1}}}}
"""
THERE = min(os.sched_getaffinity(0))


def loaded(folder: Path, cpus: str, platform: str = "") -> Any:
    path = folder / "pinned.yaml"
    path.write_text(FILE.format(cpus=cpus, platform=platform))
    return files.load(path)[0]


def test_a_platform_lets_functions_name_cpus_where_one_does(tmp_path: Path) -> None:
    file = loaded(tmp_path, str(THERE))
    assert file.platform.cpusets is True
    assert file.functions["hello"].declared()["cpus"] == str(THERE)


@pytest.mark.parametrize(
    "written", [f"{THERE}", f"[{THERE}]", f'"{THERE}"', f"['{THERE}-{THERE}']"]
)
def test_cpus_are_a_number_a_list_or_text(tmp_path: Path, written: str) -> None:
    path = tmp_path / "pinned.yaml"
    path.write_text(FILE.format(cpus="CPUS", platform="").replace('"CPUS"', written))
    named = files.load(path)[0].functions["hello"].declared()["cpus"]
    assert named in (f"{THERE}", f"{THERE}-{THERE}")


@pytest.mark.parametrize(
    ("cpus", "platform", "message"),
    [
        ("3-1", "", "numbers of CPUs, such as 0,2-3"),
        ("a", "", "numbers of CPUs, such as 0,2-3"),
        (str(THERE), ", cpusets: false", "cpusets: false"),
        (str(THERE), ", cpu_sharing: weights", "cpu_sharing: weights divides the CPUs"),
    ],
)
def test_cpus_that_cannot_be_had_are_named(
    tmp_path: Path, cpus: str, platform: str, message: str
) -> None:
    with pytest.raises(UnciaError) as error:
        loaded(tmp_path, cpus, platform)
    assert message in str(error.value)
    assert "pinned.yaml:4" in str(error.value)


def test_cpus_that_are_not_there_are_told_before_a_run(tmp_path: Path) -> None:
    path = tmp_path / "pinned.yaml"
    path.write_text(FILE.format(cpus="1023", platform=""))
    file, document = files.load(path)
    with pytest.raises(UnciaError) as error:
        cpus.check(document, file)
    assert "pinned.yaml:4: functions.hello.cpus: there is no CPU 1023 here" in str(error.value)
    assert "there is no CPU 1023 here" in lacking.of_file(document)
