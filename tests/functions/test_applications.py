"""Inner parts of the applications that need neither services nor a platform.

Their stages need both; `tests/services/test_applications.py` runs them whole.
"""

import importlib
import io
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
from function_compilers import needs_compiler

from uncia.functions import java, package
from uncia.paths import data
from uncia.services import switches

PARTS = ("uncia_envelope", "objects", "project", "toolchain", "handler", "coordinate")
FOLDERS = ("compile", "compile/python", "_shared/python")


@pytest.fixture(scope="module")
def compiling() -> Iterator[dict[str, Any]]:
    """The modules of the function `compile`, and its coordinator."""
    before = list(sys.path)
    sys.path[:0] = [str(data("functions") / folder) for folder in FOLDERS]
    try:
        yield {name: importlib.import_module(name) for name in PARTS}
    finally:
        sys.path[:] = before
        for name in PARTS:
            sys.modules.pop(name, None)


@pytest.fixture
def stored(compiling: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What the function `compile` has left in its store, by SHA-256."""
    objects, contents = compiling["objects"], {}

    def put(content: bytes) -> str:
        name: str = objects.digest(content)
        contents[name] = content
        return name

    monkeypatch.setattr(objects, "put", put)
    monkeypatch.setattr(objects, "get", contents.__getitem__)
    monkeypatch.setattr(objects, "made", lambda action: None)
    monkeypatch.setattr(objects, "note", lambda action, result: None)
    return contents


def build(
    toolchain: Any,
    folder: Path,
    sources: dict[str, str],
    headers: dict[str, str],
    flags: str = "-O2",
) -> bytes:
    folder.mkdir()
    files = {path: text.encode() for path, text in {**sources, **headers}.items()}
    toolchain.write(folder, files)
    options = toolchain.checked_flags(flags)
    made = [toolchain.compile_file(folder, path, options) for path in sources]
    program: bytes = toolchain.link(folder, made, options)
    return program


def test_a_generated_project_prints_what_was_computed_and_is_the_same_from_any_folder(
    compiling: dict[str, Any], tmp_path: Path
) -> None:
    project, toolchain = compiling["project"], compiling["toolchain"]
    sources, headers, output = project.generate(2, 2, 11)
    assert list(sources) == ["part_0.c", "part_1.c", "main.c"]
    program = build(toolchain, tmp_path / "here", sources, headers)
    assert toolchain.run(tmp_path / "here") == (output.encode(), 0)
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


PARALLEL = """\
#include <stdio.h>
int main(void) {
    int sum = 0;
    #pragma omp parallel for reduction(+:sum)
    for (int i = 0; i < 9; i++) sum += i;
    printf("%d\\n", sum);
    return 0;
}
"""


@pytest.mark.parametrize("flags", ["-O2 -g", "-g3 -fopenmp", "-flto -g", "-fprofile-arcs"])
def test_flags_are_of_linking_too_and_name_no_folder(
    compiling: dict[str, Any], flags: str, tmp_path: Path
) -> None:
    toolchain, sources = compiling["toolchain"], {"main.c": PARALLEL}
    program = build(toolchain, tmp_path / "here", sources, {}, flags)
    assert toolchain.run(tmp_path / "here") == (b"36\n", 0)
    assert build(toolchain, tmp_path / "another", sources, {}, flags) == program
    assert str(tmp_path).encode() not in program


def test_times_in_a_program_are_the_same_in_every_zone(
    compiling: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    toolchain = compiling["toolchain"]
    # A zone that the machine might be in, which is that of a process whose environment names none.
    monkeypatch.setitem(toolchain.ENVIRONMENT, "TZ", toolchain.ENVIRONMENT.get("TZ", "XYZ-5"))
    main = "#include <stdio.h>\nint main(void) { puts(__DATE__ __TIME__ __TIMESTAMP__); }\n"
    build(toolchain, tmp_path / "here", {"main.c": main}, {})
    times = b"Jan  1 197000:00:00Thu Jan  1 00:00:00 1970\n"
    assert toolchain.run(tmp_path / "here") == (times, 0)


@pytest.mark.parametrize(
    "flags",
    [
        *("-O2 file.c", "-fplugin=x.so", "-o /tmp/x", "@file", "-wrapper", "--output=x", "-c"),
        *("--specs=/dev/null", "--prefix=/tmp", "-MD", "-Wa,-a=x", "-fdump-tree-all=/tmp/x", "--"),
    ],
)
def test_flags_that_run_or_write_other_things_are_refused(
    compiling: dict[str, Any], flags: str
) -> None:
    assert compiling["toolchain"].checked_flags(" -O3  -DX=1 ") == ["-O3", "-DX=1"]
    assert compiling["toolchain"].checked_flags("--std=c11 -m64") == ["--std=c11", "-m64"]
    with pytest.raises(ValueError, match="is not taken"):
        compiling["toolchain"].checked_flags(flags)


USAGE = r"""
#include <signal.h>
#include <stdio.h>
int main(int count, char **words) {
    puts("usage: program FILE");
    fflush(stdout);
    return SIGNAL ? raise(SIGNAL) : count < 2 ? 2 : 0;
}
"""


@pytest.mark.usefixtures("stored")
def test_a_program_is_built_whatever_its_exit_code_is(compiling: dict[str, Any]) -> None:
    handler, digest = compiling["handler"].handler, compiling["objects"].digest
    expected = digest(b"usage: program FILE\n")
    kept = handler({"stage": "put", "contents": {"main.c": USAGE}})
    asked = {"stage": "build", "sources": kept["sources"], "expected": expected}
    made = handler({**asked, "flags": "-DSIGNAL=0"})
    assert (made["exit_code"], made["printed"]) == (2, expected)
    killed = {**asked, "flags": "-DSIGNAL=SIGTERM"}
    with pytest.raises(ValueError, match="was ended by signal 15"):
        handler(killed)
    assert handler({**killed, "expected": ""})["exit_code"] == -15
    with pytest.raises(ValueError, match="the program is not run"):
        handler({**killed, "run": False})
    assert not {"exit_code", "printed"} & set(handler({**killed, "expected": "", "run": False}))


def test_the_coordinator_takes_files_that_are_no_text_and_its_own_program(
    compiling: dict[str, Any], stored: dict[str, bytes], tmp_path: Path
) -> None:
    coordinate, handler = compiling["coordinate"], compiling["handler"].handler
    picture, main = b"\x89PNG\r\n\x1a\n\0\xff", "// Gr\u00fc\u00dfe\nint main(void) { return 3; }\n"
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(b"DIRC\xff")
    (tmp_path / ".env").write_text("TOKEN=secret\n")
    (tmp_path / "picture.png").write_bytes(picture)
    (tmp_path / "main.c").write_text(main, encoding="latin-1")
    out = tmp_path / "program"

    class Platform:
        def invoke(self, *, FunctionName: str, Payload: str) -> dict[str, Any]:
            assert FunctionName == "compile"
            answer = handler(json.loads(Payload))
            return {"Payload": io.BytesIO(json.dumps(answer).encode())}

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(coordinate, "client", lambda jobs: Platform())
        for _ in range(2):
            assert coordinate.main([str(tmp_path), "--out", str(out), "--check"]) == 0
    assert subprocess.run([out], check=False).returncode == 3
    given = [content for content in stored.values() if not content.startswith(b"\x7fELF")]
    assert sorted(given) == sorted([picture, main.encode("latin-1")])
    put = {"stage": "put", "contents": {"a.c": {"base64": "no"}, "b.c": 1}}
    with pytest.raises(ValueError, match=r"'a\.c' is neither a text nor bytes in base64"):
        handler(put)


def test_what_must_not_be_told_is_in_no_error(compiling: dict[str, Any]) -> None:
    choice = compiling["uncia_envelope"].Choice
    with pytest.raises(ValueError, match=r"^said: it is not a text$"):
        choice("", echoes=False).read("said", ["hunter2"])
    with pytest.raises(ValueError, match=r"^said: \"\['hunter2'\]\" is not a text$"):
        choice("").read("said", ["hunter2"])


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


@pytest.fixture(scope="module")
def alexa(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the packaged function `alexa`."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js or npm is not installed")
    folder = tmp_path_factory.mktemp("alexa")
    with zipfile.ZipFile(package("alexa").path) as archive:
        archive.extractall(folder)
    return folder


def test_alexa_answers_whatever_is_said_and_tells_no_password(alexa: Path) -> None:
    service = switches.Switches()
    address = service.start().address
    try:
        environment = {**os.environ, "UNCIA_SWITCHES_URL": f"http://{address}"}
        command = ["node", "-e", TALK, json.dumps([it[:2_000] for it in UTTERANCES])]
        done = subprocess.run(
            command, cwd=alexa, env=environment, capture_output=True, text=True, check=True
        )
    finally:
        service.close()
    *answers, end = map(json.loads, done.stdout.splitlines())
    for answer, (understood, speech) in zip(answers, UTTERANCES.values(), strict=True):
        assert answer["understood"] == understood
        assert speech in answer["speech"]
    assert end == {"count": 2}
    assert "taylor" not in (done.stdout + done.stderr).lower()


# Documents in this process, which have no revisions.
DOCUMENTS = """
const kept = new Map();
class Documents {
  async get(key) { return [kept.get(key) ?? null, 0]; }
  async put(key, value) { kept.set(key, value); }
  async transact(steps) { for (const [, key, , value] of steps) kept.set(key, value); }
  async *list(prefix) {
    for (const [key, value] of kept) if (key.startsWith(prefix)) yield [key, value, kept.size];
  }
}
class ConflictError extends Error {}
"""

REMIND = """
require("./uncia-documents.cjs").Documents = Documents;
const { handler } = require("./index.js");
let requests = 0;
const call = (stage, given) =>
  require(`./${stage}.js`)(given, { awsRequestId: String(requests++) }, { call });
const refused = async (event) =>
  console.log(await handler(event, {}).catch((error) => error.message));
(async () => {
  for (const place of ["constructor", "__proto__", "the <shop>"]) {
    const utterance = `tell reminder to remind me of milk <2%> &amp; "eggs" at ${place}`;
    const asked = `ask reminder to tell me what is at ${place}`;
    console.log((await call("frontend", { utterance })).speech);
    console.log((await call("frontend", { utterance: asked })).speech);
  }
  console.log((await call("verify", { skill: "reminder" })).count);
  await refused({ utterance: { said: "hunter2" } });
  await refused({ body: "hunter2" });
})();
"""


def test_alexa_reminds_of_anything_at_any_place_and_tells_no_mistake(alexa: Path) -> None:
    command = ["node", "-e", DOCUMENTS + REMIND]
    environment = {**os.environ, "REDIS_URL": "redis://127.0.0.1:1"}
    done = subprocess.run(
        command, cwd=alexa, env=environment, capture_output=True, text=True, check=True
    )
    *speech, count, of_parameter, of_body = done.stdout.splitlines()
    item = 'milk <2%> &amp; "eggs"'
    places = ("constructor", "__proto__", "the <shop>")
    assert speech[::2] == [f"I will remind you of {item} at {place}." for place in places]
    assert speech[1::2] == [f"At {place}: {item}." for place in places]
    assert count == "3"
    assert of_parameter == "utterance: it is not a text"
    assert of_body == "the body must be JSON"


ANALYSE = """
const { ROLES } = require("./pay.js");
const { format } = require("./records.js");
const analyses = require("./analyses.js");
(async () => {
  const { Documents } = require("./uncia-documents.cjs");
  const documents = new Documents();
  for (let number = 0; number < 5000; number++) {
    const role = Object.keys(ROLES)[number % 2];
    const record = { name: `n${number}`, role, base: 5000 + number, merit: number };
    const call = (_, { record: made }) => documents.put(`wage/${number}`, made);
    await format({ record }, {}, { call });
  }
  let answer = await analyses.fillup();
  for (const stage of ["total", "realpay", "merit"]) answer = analyses[stage](answer);
  console.log(JSON.stringify(answer).length);
  await analyses.result(answer, { awsRequestId: "1" });
  console.log(JSON.stringify((await analyses.verify()).statistics));
})();
"""


def test_analyses_hand_on_no_more_of_many_wages_than_of_few(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    shutil.copytree(data("functions") / "wages" / "node", tmp_path, dirs_exist_ok=True)
    exported = "module.exports = { ABSENT: 0, ConflictError, Documents };"
    (tmp_path / "uncia-documents.cjs").write_text(DOCUMENTS + exported)
    done = subprocess.run(
        ["node", "-e", ANALYSE], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    size, statistics = map(json.loads, done.stdout.splitlines())
    assert size < 1_000
    assert (statistics["count"], set(statistics["total"])) == (5_000, {"staff", "teamleader"})


# Within the package, so that it reaches what others do not.
PICTURES = """\
package images;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.awt.image.BufferedImage;
import java.io.ByteArrayOutputStream;
import java.util.Random;
import javax.imageio.ImageIO;

class Pictures {
    public static void main(String[] arguments) throws Exception {
        int[][] cases = {{256, 256, 10}, {320, 256, 20}, {256, 300, 1}, {256, 8192, 3}};
        for (int[] it : cases) {
            Random random = new Random(it[2]);
            int discs = Seed.discs(random);
            byte[] jpeg = Seed.encoded(Seed.draw(it[0], it[1], discs, random));
            System.out.println(discs == Discs.count(Picture.decode(jpeg, 1)));
        }
        int[][] sizes = {
            {3000, 256, 250, 21}, {256, 8192, 8, 250}, {1025, 256, 250, 62}, {640, 480, 250, 188},
            {640, 480, 250, 186}, {480, 640, 250, 188}, {256, 256, 251, 251}, {256, 256, 9, 9},
        };
        for (int[] it : sizes) {
            System.out.println(Thumbnail.fits(it[2], it[3], it[0], it[1]));
        }
        for (String direction : new String[] {"N", "", "NS", "E"}) {
            String angle = "['1/1', '2/1', '3/1']";
            JsonObject found = JsonParser.parseString("{raw: {width: 1, height: 1, latitude: "
                    + angle + ", longitude: " + angle + ", 'latitude direction': '" + direction
                    + "', 'longitude direction': 'E'}}").getAsJsonObject();
            try {
                Metadata.transform(found);
                System.out.println(found.getAsJsonObject("record").getAsJsonObject("geo").get("latitude"));
            } catch (IllegalArgumentException error) {
                System.out.println(error.getMessage());
            }
        }
        BufferedImage image = new BufferedImage(2, 2, BufferedImage.TYPE_3BYTE_BGR);
        for (String format : new String[] {"png", "jpg"}) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ImageIO.write(image, format, out);
            System.out.println(Picture.format(out.toByteArray()));
        }
    }
}
"""


def test_small_and_long_pictures_and_bad_directions(tmp_path: Path) -> None:
    needs_compiler("java")
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed (apt-get install maven)")
    with zipfile.ZipFile(package("images").path) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "Pictures.java").write_text(PICTURES)
    program, path = java.find()[0], ":".join(map(str, [tmp_path, *tmp_path.glob("lib/*.jar")]))
    compiler = [program, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-proc:none"]
    subprocess.run([*compiler, "-cp", path, tmp_path / "Pictures.java", "-d", tmp_path], check=True)
    ran = subprocess.run(
        [program, "-cp", path, "images.Pictures"], capture_output=True, text=True, check=True
    )
    lines = ran.stdout.splitlines()
    assert lines[:4] == ["true"] * 4
    # By the photograph's and the thumbnail's sizes.
    assert lines[4:12] == ["true"] * 4 + ["false"] * 4
    no_angle = "the photograph's latitude is no angle with a direction"
    north = '{"D":1,"M":2,"S":3.0,"direction":"N"}'
    assert lines[12:16] == [north, *[no_angle] * 3]
    assert lines[16:] == ["PNG", "JPEG"]
