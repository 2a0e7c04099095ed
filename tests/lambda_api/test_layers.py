"""Layers: laid over each other at /opt, kept while functions name them, refused if hostile."""

import base64
import hashlib
import io
import json
import shutil
import signal
import stat
import subprocess
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest

from .conftest import Platform, Serve, package
from .test_versions import refusal

INVALID = "InvalidParameterValueException"
ARN = "arn:aws:lambda:us-east-1:000000000000:layer:"

# What it finds of its layers: modules, files, programs, and what of it can be changed.
SOURCE = """
import os, subprocess, sys

def handler(event, context):
    found = {}
    for name in event.get("modules", []):
        module = __import__(name)
        found[name] = [module.WORD, module.__file__]
    for path in event.get("files", []):
        with open(path) as file:
            found[path] = file.read()
    if "program" in event:
        found["program"] = subprocess.run(event["program"], capture_output=True, text=True).stdout
    try:
        open("/opt/new", "w")
    except OSError as error:
        found["write"] = error.strerror
    compiled = sorted(os.listdir("/var/runtime/layers-bytecode"))
    return found | {"opt": sorted(os.listdir("/opt")), "compiled": compiled}
"""


def archive(*entries: tuple[str, str, int]) -> bytes:
    """A zip of entries: name, content, mode with the file's type."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compresslevel=1) as written:
        for name, content, mode in entries:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            written.writestr(entry, content)
    return buffer.getvalue()


def publish(platform: Platform, name: str, zipped: bytes, **about: Any) -> Any:
    return platform.client.publish_layer_version(
        LayerName=name, Content={"ZipFile": zipped}, **about
    )


def test_layers_lie_over_each_other_and_stay_while_they_are_named(serve: Serve) -> None:
    platform = serve()
    client = platform.client
    low = archive(
        ("python/word.py", "WORD = 'low'", 0o100644),
        ("python/both.py", "WORD = 'low'", 0o100644),
        ("bin/tool", "#!/bin/sh\necho low tool", 0o100755),
        ("text", "low", 0o100644),
        ("link", "text", 0o120777),
    )
    high = archive(
        (
            f"python/lib/python{host_python(platform)}/site-packages/deep.py",
            "WORD = 'deep'",
            0o100644,
        ),
        ("python/both.py", "WORD = 'high'", 0o100644),
        ("text", "high", 0o100644),
    )
    first = publish(platform, "low", low, Description="d", CompatibleRuntimes=["python3.11"])
    digest = base64.b64encode(hashlib.sha256(low).digest()).decode()
    assert (first["LayerVersionArn"], first["Version"]) == (f"{ARN}low:1", 1)
    assert (first["Content"]["CodeSha256"], first["Content"]["CodeSize"]) == (digest, len(low))
    with urllib.request.urlopen(first["Content"]["Location"]) as answer:
        assert answer.read() == low
    arns = [first["LayerVersionArn"], publish(platform, "high", high)["LayerVersionArn"]]
    made = platform.create("f", SOURCE, Layers=arns)
    assert made["Layers"] == [
        {"Arn": arns[0], "CodeSize": len(low)},
        {"Arn": arns[1], "CodeSize": len(high)},
    ]
    event = {
        "modules": ["word", "both", "deep"],
        "files": ["/opt/text", "/opt/link"],
        "program": ["tool"],
    }
    _, result = platform.invoke("f", event)
    words = {name: result[name][0] for name in event["modules"]}
    assert words == {"word": "low", "both": "high", "deep": "deep"}
    assert (result["word"][1], result["compiled"]) == ("/opt/python/word.py", ["python"])
    assert [result["/opt/text"], result["/opt/link"], result["program"]] == [
        "high",
        "high",
        "low tool\n",
    ]
    assert result["write"] == "Read-only file system"
    # The other way round the other one is above.
    client.update_function_configuration(FunctionName="f", Layers=arns[::-1])
    _, turned = platform.invoke("f", event)
    assert (turned["both"][0], turned["/opt/text"]) == ("low", "low")

    # Deleted versions are in no list, and cannot be named anew; who has them keeps them.
    client.publish_version(FunctionName="f")
    client.delete_layer_version(LayerName="low", VersionNumber=1)
    client.delete_layer_version(LayerName="low", VersionNumber=1)
    assert [it["LayerName"] for it in client.list_layers()["Layers"]] == ["high"]
    missing = {"LayerName": "low", "VersionNumber": 1}
    assert refusal(client.get_layer_version, **missing)[0] == "ResourceNotFoundException"
    code, message = refusal(platform.create, name="g", Layers=[arns[0]])
    assert (code, f"Layer version {arns[0]} does not exist." in message) == (INVALID, True)
    platform.stop(signal.SIGKILL)
    platform = serve()
    client = platform.client
    assert platform.invoke("f", event)[1] == turned
    assert platform.invoke("f:1", event)[1] == turned
    client.update_function_configuration(FunctionName="f", Layers=arns, Description="still")
    assert platform.invoke("f", event)[1] == result
    bare = client.update_function_configuration(FunctionName="f", Layers=[])
    assert ("Layers" in bare, platform.invoke("f")[1]["opt"]) == (False, [])
    client.delete_function(FunctionName="f")


def host_python(platform: Platform) -> str:
    """Major and minor version of the Python that functions run on."""
    platform.create("which", "import sys\ndef handler(e, c): return '%d.%d' % sys.version_info[:2]")
    version: str = platform.invoke("which")[1]
    platform.client.delete_function(FunctionName="which")
    return version


def test_versions_are_listed_found_and_counted(platform: Platform) -> None:
    client = platform.client
    zipped = package({"a": "a"})
    for number, runtime in enumerate(("python3.11", "nodejs20.x", "python3.11"), start=1):
        made = publish(platform, "tools", zipped, CompatibleRuntimes=[runtime], LicenseInfo="MIT")
        assert (made["Version"], made["LicenseInfo"]) == (number, "MIT")
    listed = client.list_layer_versions(LayerName="tools")["LayerVersions"]
    assert [it["Version"] for it in listed] == [3, 2, 1]
    pages = client.get_paginator("list_layer_versions").paginate(
        LayerName=f"{ARN}tools", PaginationConfig={"PageSize": 1}
    )
    assert [it["Version"] for page in pages for it in page["LayerVersions"]] == [3, 2, 1]
    of_node = client.list_layers(CompatibleRuntime="nodejs20.x")["Layers"]
    assert [it["LatestMatchingVersion"]["Version"] for it in of_node] == [2]
    assert client.list_layers(CompatibleRuntime="ruby3.3")["Layers"] == []
    got = client.get_layer_version_by_arn(Arn=f"{ARN}tools:2")
    assert got == client.get_layer_version(LayerName="tools", VersionNumber=2) | {
        "ResponseMetadata": got["ResponseMetadata"]
    }
    for number in (1, 2, 3):
        client.delete_layer_version(LayerName="tools", VersionNumber=number)
    assert publish(platform, "tools", zipped)["Version"] == 4


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("../x", "", 0o100644)], "would leave its folder"),
        ([("/etc/x", "", 0o100644)], "would leave its folder"),
        ([("l", "/etc/passwd", 0o120777)], "leads out of it"),
        ([("a/l", "../..", 0o120777)], "leads out of it"),
        ([("a/l", "..", 0o120777), ("m", "a/l/..", 0o120777)], "leads out of it"),
        ([("l", "l", 0o120777)], "in a circle"),
        ([("l", "a", 0o120777), ("l/x", "", 0o100644)], "both as a file and as a folder"),
        ([("pipe", "", stat.S_IFIFO | 0o644)], "neither a file nor a folder"),
    ],
)
def test_hostile_layers_are_refused_with_a_sentence(
    shared: Platform, entries: list[tuple[str, str, int]], words: str
) -> None:
    code, message = refusal(publish, platform=shared, name="hostile", zipped=archive(*entries))
    assert (code, words in message) == (INVALID, True), message
    assert shared.client.list_layers()["Layers"] == []
    assert list((shared.state / "code").iterdir()) == []


@pytest.fixture(scope="module")
def shared(engine_binary: Path, tmp_path_factory: pytest.TempPathFactory, runtimes: Path) -> Any:
    """A platform for layers that are refused, and leave nothing in it."""
    state = tmp_path_factory.mktemp("hostile") / "state"
    state.mkdir()
    (state / "lock").touch()
    subprocess.run(["cp", "-al", runtimes, state], check=True)
    platform = Platform(engine_binary, state)
    yield platform
    assert platform.stop() == 0


def test_too_many_files_too_many_bytes_and_too_many_layers(platform: Platform) -> None:
    many = archive(*((str(number), "", 0o100644) for number in range(70_000)))
    assert "70000 entries" in refusal(publish, platform=platform, name="many", zipped=many)[1]
    zeros = "\0" * (100 << 20)
    bomb = archive(*((str(number), zeros, 0o100644) for number in range(3)))
    assert "Unzipped size" in refusal(publish, platform=platform, name="bomb", zipped=bomb)[1]
    zipped = archive(("zeros", zeros, 0o100644))
    large = [publish(platform, f"large{number}", zipped) for number in range(3)]
    arns = [it["LayerVersionArn"] for it in large]
    code, message = refusal(platform.create, name="f", Layers=arns)
    assert (code, "exceeds the maximum allowed size of 262144000" in message) == (INVALID, True)
    platform.create("f", Layers=arns[:2])
    change = {"FunctionName": "f", "Layers": arns}
    assert refusal(platform.client.update_function_configuration, **change)[0] == INVALID
    with_much = archive(("handler.py", zeros, 0o100644))
    change = {"FunctionName": "f", "ZipFile": with_much}
    message = refusal(platform.client.update_function_code, **change)[1]
    assert "The actual size is 314572800 bytes" in message
    assert platform.invoke("f")[0]["StatusCode"] == 200
    small = [
        publish(platform, f"small{number}", package({str(number): ""}))["LayerVersionArn"]
        for number in range(6)
    ]
    assert "at most 5 layers" in refusal(platform.create, name="g", Layers=small)[1]
    platform.create("g", Layers=small[:5])
    again = [small[0], publish(platform, "small0", package({"x": ""}))["LayerVersionArn"]]
    assert "Two different versions" in refusal(platform.create, name="h", Layers=again)[1]
    assert "no ARN" in refusal(platform.create, name="h", Layers=["small0"])[1]


def test_runtimes_find_what_is_theirs_in_layers_however_they_start(serve: Serve) -> None:
    platform = serve({"pool": 1})
    modules = publish(
        platform,
        "modules",
        package(
            {
                "python/word.py": "WORD = 'one'",
                "nodejs/node_modules/word/index.js": "module.exports = 'one';",
                "ruby/lib/word.rb": "WORD = 'one'",
            }
        ),
    )["LayerVersionArn"]
    other = publish(
        platform,
        "other",
        package({"python/word.py": "WORD = 'other'", "nodejs/node_modules/x": ""}),
    )["LayerVersionArn"]
    source = "import word\ndef handler(event, context): return word.WORD"
    for kind in ("prepared", "zygote", "function_zygote", "pool"):
        # Functions whose code is the same share no layer.
        for layer, word in ((modules, "one"), (other, "other")):
            name = f"{kind}-{word}"
            platform.create(name, source, Layers=[layer], Tags={"uncia:start-from": kind})
            answers = [platform.invoke(name) for _ in range(2)]
            assert [payload for _, payload in answers] == [word] * 2, answers
    javascript = "const word = require('word');\nexports.handler = async () => word;"
    for kind in ("prepared", "pool"):
        platform.create(
            f"node-{kind}",
            {"index.js": javascript},
            Runtime="nodejs20.x",
            Handler="index.handler",
            Layers=[modules],
            Tags={"uncia:start-from": kind},
        )
        assert platform.invoke(f"node-{kind}")[1] == "one"
    if shutil.which("ruby"):
        ruby = "require 'word'\ndef handler(event:, context:) = WORD\n"
        for kind in ("prepared", "pool"):
            platform.create(
                f"ruby-{kind}",
                {"handler.rb": ruby},
                Runtime="ruby3.3",
                Layers=[modules],
                Tags={"uncia:start-from": kind},
            )
            # The pool has none for the first one, and one for the second.
            assert platform.invoke(f"ruby-{kind}")[1] == "one"
    # A runtime of its own, and a wrapper before one that is not.
    bootstrap = '#!/bin/sh\nexec /opt/bin/speak "$AWS_LAMBDA_RUNTIME_API"\n'
    wrapper = '#!/bin/sh\nexport WRAPPED="by $0"\nexec "$@"\n'
    programs = publish(
        platform,
        "programs",
        archive(("wrap", wrapper, 0o100755), ("bootstrap", bootstrap, 0o100755)),
    )["LayerVersionArn"]
    platform.create(
        "wrapped",
        "import os\ndef handler(event, context): return os.environ['WRAPPED']",
        Layers=[programs],
        Environment={"Variables": {"AWS_LAMBDA_EXEC_WRAPPER": "/opt/wrap"}},
        Tags={"uncia:start-from": "zygote"},
    )
    assert platform.invoke("wrapped")[1] == "by /opt/wrap"
    platform.create("own", {"text": ""}, Runtime="provided.al2023", Handler="x", Layers=[programs])
    # It is found, and what it wants to run is not.
    failure = platform.invoke("own")[1]
    assert failure["errorType"] == "Runtime.ExitError", json.dumps(failure)
