"""The applications, end to end: right end states, and what becomes of bad input.

Each test takes some ten seconds and real services, so `make test-suites` alone runs them.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from run_helpers import Uncia, finish, function

from uncia import functions
from uncia.errors import UnciaError
from uncia.functions import java
from uncia.functions.images.code import image_of
from uncia.paths import data
from uncia.platforms import Context, boto
from uncia.platforms.embedded import service_config
from uncia.platforms.journal import Journal
from uncia.platforms.server import Server
from uncia.services import redis_server, store

pytestmark = [
    pytest.mark.skipif(
        "UNCIA_TEST_SUITES" not in os.environ, reason="the long form: make test-suites"
    ),
    pytest.mark.timeout(600),
]


def carry_out(uncia: Uncia, folder: Path, content: dict[str, Any]) -> list[dict[str, Any]]:
    """Run an experiment file; returns the rows."""
    folder.mkdir(exist_ok=True)
    (folder / "file.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    ended = finish(uncia("run", folder / "file.yaml", "--out", folder / "out"))
    table = folder / "out" / "invocations.parquet"
    assert table.exists(), ended.out + ended.err
    rows = pyarrow.parquet.read_table(table).to_pylist()
    failed = [(row["experiment"], row["error"]) for row in rows if row["outcome"] != "ok"]
    assert ended.code == 0, (ended.out + ended.err, failed)
    return rows


def outcomes(rows: list[dict[str, Any]], experiment: str, **of: Any) -> list[str]:
    """The outcomes of the rows of an experiment with these values."""
    return [
        row["outcome"]
        for row in rows
        if row["experiment"] == experiment and all(row[key] == it for key, it in of.items())
    ]


def errors(rows: list[dict[str, Any]], experiment: str) -> str:
    """What rows of an experiment say that went wrong."""
    return "\n".join(
        row["error"] for row in rows if row["experiment"] == experiment and row["error"]
    )


@pytest.fixture
def needs_java(built: None) -> None:
    """Skips where there is no Java, Maven or server of documents."""
    try:
        java.find()
        redis_server.PROGRAM.find()
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed (apt-get install maven)")


IMAGE_STAGES = {
    "metadata": ["store"],
    "transform": [],
    "discs": ["store"],
    "thumbnail": ["store"],
    "record": ["documents"],
}
# The form of the photograph, where it fails, and why.
BAD_IMAGES = {
    "truncated": ("discs", "the picture is damaged: "),
    "huge": ("metadata", "the picture has 1,000,000,000 pixels, and 100,000,000 are the most"),
}


def images(forms: list[str], size: dict[str, int]) -> dict[str, Any]:
    """An experiment file that makes a photograph of each form, processes and checks it."""
    both = {"source": "images", "reach": ["store", "documents"]}
    functions: dict[str, Any] = {"seed": both, "verify": both | {"parameters": {"stage": "verify"}}}
    for stage, reach in IMAGE_STAGES.items():
        functions[stage] = {"source": "images", "parameters": {"stage": stage}}
        functions[stage] |= {"reach": reach} if reach else {}
    chains, experiments = {}, {}
    once = {"clients": 1, "requests": 1}
    for number, form in enumerate(forms):
        stages: dict[str, Any] = {
            stage: {"function": stage, "parameters": {"found": "{{answer.found}}"}}
            for stage in IMAGE_STAGES
        }
        stages["metadata"]["parameters"] = {"name": form}
        chains[form] = {"stages": stages}
        given = {"name": form, "form": form, "seed": number, **size}
        experiments[f"seed-{form}"] = {"function": "seed", "parameters": given, "closed": once}
        closed = once if form in BAD_IMAGES else {"clients": 2, "requests": 4}
        experiments[form] = {"chain": form, "kind": "sequence", "closed": closed}
        check = {"function": "verify", "parameters": {"name": form}, "closed": once}
        experiments[f"verify-{form}"] = check
        if form in BAD_IMAGES:
            experiments[form]["expect"] = {"function_error": "allowed"}
            check["expect"] = {"function_error": "all"}
    return {
        "name": "images",
        "platform": {"kind": "embedded", "init_timeout": "1min"},
        "services": {"store": {}, "documents": {}},
        "functions": functions,
        "chains": chains,
        "experiments": experiments,
    }


@pytest.mark.usefixtures("needs_java")
def test_image_processing_leaves_what_was_seeded_and_refuses_bad_photographs(
    uncia: Uncia, tmp_path: Path
) -> None:
    forms = ["whole", "plain", *BAD_IMAGES]
    # Of another shape and other discs than the experiments'.
    content = images(forms, {"width": 1000, "height": 700})
    follow = function(tmp_path / "follow", "def handler(event, context):\n    return {}\n")
    content["functions"]["follow"] = {"source": str(follow)}
    content["triggers"] = {"seeded": {"prefix": "expected/", "function": "follow"}}
    rows = carry_out(uncia, tmp_path, content)
    for form in ("whole", "plain"):
        assert outcomes(rows, form, parent=None) == ["ok"] * 4
        assert outcomes(rows, f"verify-{form}") == ["ok"]
    for form, (stage, sentence) in BAD_IMAGES.items():
        assert outcomes(rows, form, stage=stage) == ["function_error"]
        assert sentence in errors(rows, form)
        # Nothing behind it ran, and nothing was recorded.
        assert outcomes(rows, form, stage="thumbnail") == []
        assert f"there is no record of {form}" in errors(rows, f"verify-{form}")
    # Changes tell who made them, by which a trigger that leads to itself is known.
    seeds = {row["invocation"] for row in rows if row["experiment"] in map("seed-{}".format, forms)}
    seeds -= {row["invocation"] for row in rows if row["stage"] == "seeded"}
    assert {row["parent"] for row in rows if row["stage"] == "seeded"} == seeds


@pytest.fixture
def needs_root(built: None) -> None:
    """Skips where no root with a compiler can be made."""
    if shutil.which("mmdebstrap") is None or os.geteuid() != 0:
        pytest.skip("mmdebstrap is not installed, or the user is not root")


GOOD = {
    "main.c": '#include <stdio.h>\n#include "a.h"\nint main(void) { printf("%d\\n", part(A)); }\n',
    "lib/part.c": '#include "a.h"\nint part(int x) { return x + 40; }\n',
    "a.h": "enum { A = 2 };\nint part(int x);\n",
}
BAD = GOOD | {"lib/part.c": "int part(int x) { return x + ; }\n"}


def compiling(texts: dict[str, str]) -> dict[str, Any]:
    """The stages that build a project of two C files in one function, and side by side."""
    headers = "{{answers.kept.headers}}"
    stages: dict[str, Any] = {
        "kept": {
            "function": "compile",
            "parameters": {"stage": "put", "contents": json.dumps(texts)},
        }
    }
    for number in range(2):
        source = f"{{{{answers.kept.sources.{number}}}}}"
        parameters = {"stage": "compile", "source": source, "headers": headers}
        stages[f"c{number}"] = {"function": "compile", "after": "kept", "parameters": parameters}
    whole = {"stage": "build", "sources": "{{answers.kept.sources}}", "headers": headers}
    stages["built"] = {"function": "compile", "after": ["c0", "c1"], "parameters": whole}
    made = ["{{answers.c0.object}}", "{{answers.c1.object}}"]
    printed = hashlib.sha256(b"42\n").hexdigest()
    last = {"stage": "link", "sources": made, "program": "{{answers.built.program}}"}
    stages["link"] = {"function": "compile", "parameters": last | {"expected": printed}}
    return {"stages": stages}


@pytest.mark.usefixtures("needs_root")
def test_online_compiling_equals_a_build_in_one_function_and_links_nothing_that_failed(
    uncia: Uncia, tmp_path: Path
) -> None:
    once = {"kind": "client", "closed": {"clients": 1, "requests": 1}}
    content = {
        "name": "compiling",
        "platform": {"kind": "embedded"},
        "services": {"store": {}},
        "functions": {"compile": {"source": "compile", "reach": ["store"]}},
        "chains": {"good": compiling(GOOD), "bad": compiling(BAD)},
        "experiments": {
            "good": {"chain": "good", **once},
            "bad": {"chain": "bad", **once, "expect": {"function_error": "allowed"}},
        },
    }
    rows = carry_out(uncia, tmp_path, content)
    assert outcomes(rows, "good") == ["ok"] * 5
    assert outcomes(rows, "good", stage="link") == ["ok"]
    assert sorted(outcomes(rows, "bad")) == ["function_error", "ok", "ok"]
    assert {row["stage"] for row in rows if row["experiment"] == "bad"} == {"kept", "c0", "c1"}
    assert "./lib/part.c:1:" in errors(rows, "bad")
    assert "error: expected expression before" in errors(rows, "bad")


@pytest.fixture
def needs_node() -> None:
    """Skips where Node.js, npm or the server of documents is missing."""
    try:
        redis_server.PROGRAM.find()
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js or npm is not installed (apt-get install nodejs npm)")


@pytest.mark.usefixtures("needs_node")
def test_alexa_switches_devices_for_who_knows_the_password_and_keeps_reminders(
    uncia: Uncia, tmp_path: Path
) -> None:
    content = yaml.safe_load((data("experiments") / "serverlessbench/tc4-alexa.yaml").read_text())
    chains = content["chains"]
    devices = ["door", "light", "tv", "air-conditioning", "plug"]
    wrong = chains.pop("smarthome-cold")["stages"]
    chains["wrong"] = {"stages": {it: wrong[it] for it in wrong if it not in devices}}
    # A password of the function's own, and one that is not right there.
    right = hashlib.sha256(b"sesame").hexdigest()
    content["functions"]["smarthome"]["environment"] = {"PASSWORD_SHA256": right}
    utterance = "open smarthome to I love {}"
    for name, word in (("wrong", "taylor swift"), ("smarthome-warm", "Sesame")):
        chains[name]["stages"]["frontend"]["parameters"]["utterance"] = utterance.format(word)
    asked = {"skill": "smarthome"}
    once = {"clients": 1, "requests": 1}
    several = {"kind": "nested", "closed": {"clients": 2, "requests": 6}}
    content["experiments"] = {
        "wrong": {"chain": "wrong", "kind": "nested", "closed": once},
        "untouched": {
            "function": "verify",
            "parameters": asked,
            "closed": once,
            "expect": {"function_error": "all"},
        },
        "right": {"chain": "smarthome-warm", **several},
        "switched": {"function": "verify", "parameters": asked, "closed": once},
        "reminders": {"chain": "reminder-warm", **several},
        "counted": {"function": "verify", "parameters": {"skill": "reminder"}, "closed": once},
    }
    rows = carry_out(uncia, tmp_path, content)
    stages = {row["stage"] for row in rows if row["experiment"] == "wrong"}
    assert stages == {"frontend", "interact", "smarthome"}
    for device in devices:
        assert outcomes(rows, "right", stage=device) == ["ok"] * 6
    # The five were invoked by one invocation of the smart home, at once.
    homes = {row["invocation"] for row in rows if row["stage"] == "smarthome"}
    assert {row["parent"] for row in rows if row["stage"] in devices} < homes
    assert outcomes(rows, "reminders", parent=None) == ["ok"] * 6
    text = json.dumps(rows, default=str).lower()
    assert "sesame" not in text
    assert "taylor" not in text


WAGES = [("staff", 5000, 4999), ("staff", 5000, 7), ("manager", 8000, 31_415), ("teamleader", 1, 0)]
BAD_WAGES = [("boss", 5000, 1), ("staff", -5000, 1), ("staff", 5000, 5000), ("manager", 8000, -1)]


@pytest.mark.usefixtures("needs_node")
def test_statistics_are_those_of_all_records_that_were_inserted_at_once(
    uncia: Uncia, tmp_path: Path
) -> None:
    content = yaml.safe_load((data("experiments") / "serverlessbench/tc4-wages.yaml").read_text())
    chain = content["chains"].pop("wages-cold")
    for stage in chain["stages"].values():
        del stage["settings"]
    content["chains"].pop("wages-warm")
    content["chains"]["made"] = chain
    once = {"kind": "nested", "closed": {"clients": 1, "requests": 1}}
    content["experiments"] = {
        "made": {"chain": "made", "kind": "nested", "closed": {"clients": 4, "requests": 20}}
    }
    for number, (role, base, merit) in enumerate([*WAGES, *BAD_WAGES]):
        record = {"name": f"n{number}", "role": role, "base": base, "merit": merit}
        name, is_bad = f"wage-{number}", number >= len(WAGES)
        stages = {} if is_bad else dict(chain["stages"])
        given = {"record": json.dumps(record)}
        stages["insert"] = {"function": "insert", "parameters": given}
        stages = {it: stages[it] for it in ("insert", "format", "write") if it in stages}
        content["chains"][name] = {"stages": stages}
        content["experiments"][name] = {"chain": name, **once}
        if is_bad:
            content["experiments"][name]["expect"] = {"function_error": "all"}
    check = {"function": "verify", "closed": {"clients": 1, "requests": 1}}
    content["experiments"]["verified"] = check
    rows = carry_out(uncia, tmp_path, content)
    assert outcomes(rows, "verified") == ["ok"]
    assert outcomes(rows, "made", stage="result") == ["ok"] * 20
    for number in range(len(BAD_WAGES)):
        name = f"wage-{len(WAGES) + number}"
        assert outcomes(rows, name) == ["function_error"]
    words = "\n".join(errors(rows, f"wage-{len(WAGES) + it}") for it in range(len(BAD_WAGES)))
    assert 'role: "boss" is none of staff, teamleader, manager' in words
    assert "base: -5000 is no whole number from 1 to 1000000" in words
    assert "merit: 5000 is no whole number from 0 to 4999" in words
    assert "merit: -1 is no whole number from 0 to 49999" in words


@pytest.mark.usefixtures("needs_root")
def test_a_folder_of_ones_own_is_compiled_by_the_coordinator_as_it_is_here(
    tmp_path: Path, state_home: Path
) -> None:
    del state_home
    journal = Journal("coordinated", tmp_path / "journal")
    context = Context("coordinated", journal)
    service = store.connect(store.Options(), context)
    image, _ = image_of(functions.load("compile"))
    config = {"images": [str(image.folder)]}
    try:
        config["services"] = service_config({"store": service.start()})
        server = Server(tmp_path / "state", config)
        try:
            boto.client(server.address).create_function(
                FunctionName="compile",
                Role=boto.ROLE,
                PackageType="Image",
                Code={"ImageUri": f"oci:{image.folder}"},
                MemorySize=1769,
                Timeout=60,
                Tags={"uncia:reach": "store"},
            )
            environment = {
                **os.environ,
                "AWS_ENDPOINT_URL_LAMBDA": f"http://{server.address}",
                "AWS_ACCESS_KEY_ID": "any",
                "AWS_SECRET_ACCESS_KEY": "any",
                "AWS_DEFAULT_REGION": "us-east-1",
            }

            def coordinate(texts: dict[str, str]) -> subprocess.CompletedProcess[str]:
                folder = tmp_path / f"project-{len(list(tmp_path.iterdir()))}"
                for path, text in texts.items():
                    (folder / path).parent.mkdir(parents=True, exist_ok=True)
                    (folder / path).write_text(text)
                script = data("functions") / "compile" / "coordinate.py"
                command = [sys.executable, str(script), str(folder), "--check", "--out"]
                return subprocess.run(
                    [*command, str(tmp_path / "program")],
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                )

            bad = coordinate(BAD)
            assert bad.returncode == 1
            assert "lib/part.c:1:" in bad.stderr
            assert not (tmp_path / "program").exists()
            good = coordinate(GOOD)
            assert good.returncode == 0, good.stderr
            assert subprocess.check_output([tmp_path / "program"]) == b"42\n"
        finally:
            server.stop()
    finally:
        service.close()
        journal.close()
