"""Runtime clients that others publish, fetched from their registries."""

import io
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from lambda_api.conftest import Platform

from uncia import functions
from uncia.errors import UnciaError

STOCK = """\
package main

import (
	"context"
	"errors"

	"github.com/aws/aws-lambda-go/lambda"
)

type event struct {
	Name string `json:"name"`
}

func main() {
	lambda.Start(func(_ context.Context, given event) (map[string]string, error) {
		if given.Name == "" {
			return nil, errors.New("nobody to greet")
		}
		return map[string]string{"greeting": "hello " + given.Name}, nil
	})
}
"""
MODULE = "module function\n\ngo 1.21\n\nrequire github.com/aws/aws-lambda-go v1.49.0\n"
SUMS = """\
github.com/aws/aws-lambda-go v1.49.0 h1:z4VhTqkFZPM3xpEtTqWqRqsRH4TZBMJqTkRiBPYLqIQ=
github.com/aws/aws-lambda-go v1.49.0/go.mod h1:dpMpZgvWx5vuQJfBt0zqBha60q7Dd7RfgJv23DymV8A=
"""


# How the registries' tools say that they reach none.
OFFLINE = re.compile(
    r"dial tcp|lookup|Gateway|resolution|Unknown host|ENOTFOUND|EAI_AGAIN|refused|timed? ?out", re.I
)


def fetch(*command: str | Path, within: Path) -> None:
    """Runs what fetches a client; without the registry the test is skipped."""
    done = subprocess.run(command, cwd=within, capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    if done.returncode != 0 and OFFLINE.search(text):
        pytest.skip(f"the registry cannot be reached: {text.strip()[-200:]}")
    assert done.returncode == 0, text


def test_amazons_library_for_go(
    engine_binary: Path, state: Path, tmp_path: Path, *, long: bool
) -> None:
    if not long:
        pytest.skip("compiles Go's library for HTTP: make soak")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "main.go").write_text(STOCK)
    (folder / "go.mod").write_text(MODULE)
    (folder / "go.sum").write_text(SUMS)
    try:
        made = functions.package(folder)
    except UnciaError as error:
        if "no Go" in error.message or OFFLINE.search(error.message):
            pytest.skip(error.message)
        raise
    platform = Platform(engine_binary, state)
    try:
        platform.create(
            "f",
            Code={"ZipFile": made.read_bytes()},
            Runtime="provided.al2023",
            Handler=made.handler,
        )
        assert platform.invoke("f", {"name": "you"})[1] == {"greeting": "hello you"}
        answer, error = platform.invoke("f", {})
        assert answer["FunctionError"] == "Unhandled"
        assert error == {"errorMessage": "nobody to greet", "errorType": "errorString"}
    finally:
        assert platform.stop() == 0


def answers(
    platform: Platform, error_type: str, sizes: tuple[int, ...] = (10, 70_000, 2_000_000)
) -> None:
    """Whether a function serves events, and goes on after errors of any length."""
    assert platform.invoke("f", {"name": "you"})[1] == ["you", True]
    # What an exception says stands in a header, too, with its stack.
    for size in sizes:
        answer, error = platform.invoke("f", {"raises": size})
        assert answer["FunctionError"] == "Unhandled"
        assert (error["errorType"], error["errorMessage"]) == (error_type, "x" * size)
    assert platform.headers("f", {"name": "again"})["x-uncia-start"] in ("warm", "thawed")


# In place of the platform's client, in the process that this has started.
PYTHON = """
from awslambdaric.__main__ import main

main(["awslambdaric", "app.handler"])
"""
HANDLER = """
def handler(event, context):
    if "raises" in event:
        raise ValueError("x" * event["raises"])
    return [event["name"], context.get_remaining_time_in_millis() > 0]
"""


def test_amazons_client_for_python(
    engine_binary: Path, state: Path, tmp_path: Path, *, long: bool
) -> None:
    if not long:
        pytest.skip("fetches a client from PyPI: make soak")
    folder = tmp_path / "mine"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    fetch(*install, "--target", folder, "awslambdaric==4.2.2", within=tmp_path)
    (folder / "handler.py").write_text(PYTHON)
    (folder / "app.py").write_text(HANDLER)
    package = shutil.make_archive(str(tmp_path / "package"), "zip", folder)
    platform = Platform(engine_binary, state)
    try:
        platform.create("f", Code={"ZipFile": Path(package).read_bytes()})
        answers(platform, "ValueError")
    finally:
        assert platform.stop() == 0


PROJECT = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mine</groupId>
  <artifactId>mine</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>com.amazonaws</groupId>
      <artifactId>aws-lambda-java-runtime-interface-client</artifactId>
      <version>2.6.0</version>
    </dependency>
  </dependencies>
</project>
"""
JAVA = {
    "Handler.java": """
public class Handler {
    static {
        String[] arguments = {"App::handle"};
        com.amazonaws.services.lambda.runtime.api.client.AWSLambda.main(arguments);
    }

    public Object handleRequest(Object event) {
        return "it is the platform's client that asks";
    }
}
""",
    "App.java": """
import com.amazonaws.services.lambda.runtime.Context;
import java.util.List;
import java.util.Map;

public class App {
    public Object handle(Map<String, Object> event, Context context) {
        if (event.containsKey("raises")) {
            throw new IllegalStateException("x".repeat((int) event.get("raises")));
        }
        return List.of(event.get("name"), context.getRemainingTimeInMillis() > 0);
    }
}
""",
}


@pytest.mark.timeout(600)
def test_amazons_client_for_java(
    engine_binary: Path, state: Path, tmp_path: Path, *, long: bool
) -> None:
    if not long:
        pytest.skip("fetches a client from Maven Central: make soak")
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        pytest.skip("there is no Maven, or no Java compiler")
    (tmp_path / "pom.xml").write_text(PROJECT)
    made = tmp_path / "made"
    copy = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies"]
    fetch(*copy, f"-DoutputDirectory={made / 'lib'}", within=tmp_path)
    sources = [tmp_path / name for name in JAVA]
    for path in sources:
        path.write_text(JAVA[path.name])
    compiler = ["javac", "--release", "17", "-cp", f"{made / 'lib'}/*", "-d", made]
    subprocess.run([*compiler, *sources], check=True)
    package = shutil.make_archive(str(tmp_path / "package"), "zip", made)
    platform = Platform(engine_binary, state)
    try:
        code = {"ZipFile": Path(package).read_bytes()}
        platform.create("f", Code=code, Runtime="java21", Handler="Handler", MemorySize=1769)
        answers(platform, "java.lang.IllegalStateException")
    finally:
        assert platform.stop() == 0


NODE = {
    "handler.mjs": """
import { run } from "aws-lambda-ric";

await run("/var/task", "app.handler");
// It has begun to ask for events: the platform's client must not.
await new Promise(() => {});
export const handler = async () => "it is the platform's client that asks";
""",
    "app.js": """
exports.handler = async (event, context) => {
  if ("raises" in event) throw new RangeError("x".repeat(event.raises));
  return [event.name, context.getRemainingTimeInMillis() > 0];
};
""",
}


@pytest.mark.timeout(1800)
def test_amazons_client_for_node(
    engine_binary: Path, state: Path, tmp_path: Path, *, long: bool
) -> None:
    if not long:
        pytest.skip("fetches a client from npm's registry, and compiles it: make soak")
    missing = [it for it in ("npm", "cmake", "autoreconf", "c++", "make") if not shutil.which(it)]
    if missing:
        pytest.skip(f"compiling the client takes {', '.join(missing)}")
    prefix = Path(shutil.which("node") or "").resolve().parents[1]
    # Else they are fetched from elsewhere than a registry.
    own_headers = (prefix / "include/node/common.gypi").exists()
    headers = [f"--nodedir={prefix}"] if own_headers else []
    install = ["npm", "install", "--prefix", tmp_path, "--loglevel", "error", *headers]
    fetch(*install, "aws-lambda-ric@3.3.0", within=tmp_path)
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in NODE.items():
            archive.writestr(name, text)
        # Not what it was compiled of: more than a package may be.
        client = tmp_path / "node_modules/aws-lambda-ric"
        for path in (client / "package.json", *(client / "dist").iterdir()):
            archive.write(path, path.relative_to(tmp_path))
    platform = Platform(engine_binary, state)
    try:
        platform.create(
            "f",
            Code={"ZipFile": package.getvalue()},
            Runtime="nodejs20.x",
            Handler="handler.handler",
        )
        # The curl that it is linked with sends no head of more than 1 MiB.
        answers(platform, "RangeError", (10, 70_000, 500_000))
    finally:
        assert platform.stop() == 0
