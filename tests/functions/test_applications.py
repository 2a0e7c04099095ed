"""Inner parts of the applications that need neither services nor a platform.

Their stages need both; `tests/services/test_applications.py` runs them whole.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from uncia.functions import package
from uncia.paths import data
from uncia.services import switches

PARTS = ("project", "toolchain")


@pytest.fixture(scope="module")
def compiling() -> Iterator[dict[str, Any]]:
    """The modules of the function `compile`."""
    folder = str(data("functions") / "compile" / "python")
    sys.path.insert(0, folder)
    try:
        yield {name: importlib.import_module(name) for name in PARTS}
    finally:
        sys.path.remove(folder)
        for name in PARTS:
            sys.modules.pop(name, None)


def build(toolchain: Any, folder: Path, sources: dict[str, str], headers: dict[str, str]) -> bytes:
    folder.mkdir()
    files = {path: text.encode() for path, text in {**sources, **headers}.items()}
    toolchain.write(folder, files)
    made = [toolchain.compile_file(folder, path, ["-O2"]) for path in sources]
    program: bytes = toolchain.link(folder, made)
    return program


def test_a_generated_project_prints_what_was_computed_and_is_the_same_from_any_folder(
    compiling: dict[str, Any], tmp_path: Path
) -> None:
    project, toolchain = compiling["project"], compiling["toolchain"]
    sources, headers, output = project.generate(2, 2, 11)
    assert list(sources) == ["part_0.c", "part_1.c", "main.c"]
    program = build(toolchain, tmp_path / "here", sources, headers)
    assert toolchain.run(tmp_path / "here") == output.encode()
    assert build(toolchain, tmp_path / "another", sources, headers) == program
    other, _, printed = project.generate(2, 2, 12)
    assert (other["part_0.c"], printed) != (sources["part_0.c"], output)


def test_the_compilers_words_are_the_error(compiling: dict[str, Any], tmp_path: Path) -> None:
    toolchain = compiling["toolchain"]
    with pytest.raises(toolchain.CompileError, match=r"bad.c:1:\d+: error: expected"):
        build(toolchain, tmp_path / "bad", {"bad.c": "int main(void) { return }\n"}, {})
    code = "void absent(void); int main(void) { absent(); return 0; }\n"
    with pytest.raises(toolchain.CompileError, match="undefined reference to `absent'"):
        build(toolchain, tmp_path / "absent", {"main.c": code}, {})


@pytest.mark.parametrize("path", ["../a.c", "/a.c", "", "b/../../a.c"])
def test_paths_stay_in_the_project(compiling: dict[str, Any], path: str) -> None:
    with pytest.raises(ValueError, match="no path within the project"):
        compiling["toolchain"].checked_path(path)


@pytest.mark.parametrize("flags", ["-O2 file.c", "-fplugin=x.so", "-o /tmp/x", "@file", "-wrapper"])
def test_flags_that_run_or_write_other_things_are_refused(
    compiling: dict[str, Any], flags: str
) -> None:
    assert compiling["toolchain"].checked_flags(" -O3  -DX=1 ") == ["-O3", "-DX=1"]
    with pytest.raises(ValueError, match="is not taken"):
        compiling["toolchain"].checked_flags(flags)


@pytest.mark.parametrize(
    ("variables", "words"),
    [({"AWS_DEFAULT_REGION": "us-east-1"}, "Could not connect"), ({}, "You must specify a region")],
)
def test_the_coordinator_says_why_it_cannot_invoke(
    tmp_path: Path, variables: dict[str, str], words: str
) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    program = data("functions") / "compile" / "coordinate.py"
    aws = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_ENDPOINT_URL_LAMBDA": "http://127.0.0.1:1",
    }
    command = [sys.executable, program, tmp_path, "--out", tmp_path / "out"]
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], **aws, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert "Traceback" not in done.stderr


# All of Alexa's functions in one process: who invokes another, calls it.
TALK = """
const name = (stage) => (devices.includes(stage) ? "device" : stage);
const devices = require("./devices.json");
const stages = {
  call: (stage, given) => require(`./${name(stage)}.js`)(given, { awsRequestId: "1" }, stages),
};
(async () => {
  for (const utterance of JSON.parse(process.argv[1])) {
    console.log(JSON.stringify(await stages.call("frontend", { utterance })));
  }
  console.log(JSON.stringify(await stages.call("verify", { skill: "smarthome", position: "OFF" })));
})();
"""

UTTERANCES = {
    "Alexa, ask fact for a fact!": (True, "."),
    "open smarthome to I love Taylor Smith": (True, "Sorry, that password is wrong."),
    "open smarthome to I love taylor swift": (
        True,
        "door: switch ON, light: switch ON, tv: switch ON,",
    ),
    "open smarthome to switch off with Taylor  Swift": (True, "Sorry, that password is wrong."),
    "open smarthome to switch off with Taylor Swift": (True, "plug: switch OFF"),
    "open cooking to boil an egg": (False, "Sorry, I do not know that skill."),
    "open constructor to boil an egg": (False, "Sorry, I do not know that skill."),
    "open fact to boil an egg": (False, "Sorry, fact cannot do that."),
    "hello": (False, "Sorry, I did not understand that."),
    "open fact to " + "tell " * 100_000: (False, "Sorry, I did not understand that."),
}


def test_alexa_answers_whatever_is_said_and_tells_no_password(tmp_path: Path) -> None:
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js or npm is not installed")
    with zipfile.ZipFile(package("alexa").path) as archive:
        archive.extractall(tmp_path)
    service = switches.Switches()
    address = service.start().address
    try:
        environment = {**os.environ, "UNCIA_SWITCHES_URL": f"http://{address}"}
        command = ["node", "-e", TALK, json.dumps([it[:2_000] for it in UTTERANCES])]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
    finally:
        service.close()
    *answers, end = map(json.loads, done.stdout.splitlines())
    for answer, (understood, speech) in zip(answers, UTTERANCES.values(), strict=True):
        assert answer["understood"] == understood
        assert speech in answer["speech"]
    assert end == {"count": 2}
    assert "taylor" not in (done.stdout + done.stderr).lower()
