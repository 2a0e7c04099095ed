"""Packages of Node.js and Java functions: pinned by hash, installed once, or a sentence."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest
from function_compilers import needs_compiler

from uncia.errors import UnciaError
from uncia.functions import lock, npm, package

NODE = 'const pad = require("left-pad");\nexports.handler = () => ({ padded: pad("1", 3, "0") });\n'
JAVA = """\
import org.json.JSONObject;
public class Handler {
    public Object handleRequest(Object event) { return new JSONObject("{}").toMap(); }
}
"""


@pytest.fixture
def node(tmp_path: Path, cache: Path) -> Path:
    """A function in JavaScript that requires a package, which nothing pins yet."""
    folder = tmp_path / "node"
    folder.mkdir()
    (folder / "index.js").write_text(NODE)
    (folder / "package.json").write_text('{"dependencies": {"left-pad": "^1.3.0"}}')
    return folder


@pytest.fixture
def java(tmp_path: Path, cache: Path) -> Path:
    """A function in Java that requires an artifact, which nothing pins yet."""
    folder = tmp_path / "java"
    folder.mkdir()
    (folder / "Handler.java").write_text(JAVA)
    (folder / "requirements.txt").write_text("org.json:json:20240303\n")
    return folder


def _needs(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


def test_npm_packages_are_locked_without_addresses_and_packaged(node: Path, cache: Path) -> None:
    _needs("npm")
    with pytest.raises(UnciaError, match=r"index\.js loads left-pad, which is not in .* not pin"):
        package(node)
    (written,) = lock(node)
    assert written.path == node / "package-lock.json"
    assert written.pins == ["left-pad@1.3.0"]
    assert "://" not in written.path.read_text()
    assert sorted(path.name for path in node.iterdir()) == [
        *("index.js", "package-lock.json", "package.json")
    ]
    made = package(node)
    with zipfile.ZipFile(made.path) as archive:
        names = set(archive.namelist())
    assert {"index.js", "node_modules/left-pad/index.js"} < names
    # Every other machine has the same bytes, whatever else it has in its cache.
    shutil.rmtree(cache / "uncia")
    assert package(node).sha256 == made.sha256


def test_another_file_than_the_locked_one_is_refused(node: Path, cache: Path) -> None:
    _needs("npm")
    lock(node)
    path = node / "package-lock.json"
    content = json.loads(path.read_text())
    entry = content["packages"]["node_modules/left-pad"]
    entry["integrity"] = "sha512-" + "A" * 86 + "=="
    path.write_text(json.dumps(content))
    with pytest.raises(UnciaError, match=r"(?s)installing .*package-lock\.json failed:.*INTEGRITY"):
        package(node)
    assert all(it.suffix == ".lock" for it in (cache / "uncia" / "dependencies").iterdir())
    del entry["integrity"]
    path.write_text(json.dumps(content))
    for words in (None, "none", "sha512-"):
        entry["integrity"] = words
        path.write_text(json.dumps(content))
        with pytest.raises(UnciaError, match="left-pad has no integrity"):
            package(node)
    entry["inBundle"] = True
    path.write_text(json.dumps(content))
    with pytest.raises(UnciaError, match="left-pad has no integrity"):
        package(node)


def test_an_optional_package_that_fails_is_not_left_out(node: Path, cache: Path) -> None:
    _needs("npm")
    (node / "package.json").write_text('{"optionalDependencies": {"left-pad": "^1.3.0"}}')
    lock(node)
    path = node / "package-lock.json"
    content = json.loads(path.read_text())
    content["packages"]["node_modules/left-pad"]["integrity"] = "sha512-" + "A" * 86 + "=="
    path.write_text(json.dumps(content))
    with pytest.raises(UnciaError, match="npm left node_modules/left-pad out"):
        package(node)
    assert all(it.suffix == ".lock" for it in (cache / "uncia" / "dependencies").iterdir())


def test_a_functions_own_registries_are_asked(node: Path) -> None:
    _needs("npm")
    (node / ".npmrc").write_text("registry=http://127.0.0.1:1/\nfetch-retries=0\n")
    with pytest.raises(UnciaError, match="npm found no versions of left-pad"):
        lock(node)


def test_what_shared_files_need_is_required(node: Path) -> None:
    (node / "index.js").write_text(
        'const { Documents } = require("./uncia-documents.cjs");\nexports.handler = () => 1;\n'
    )
    with pytest.raises(UnciaError, match=r"loads uncia-documents\.cjs, which needs redis"):
        package(node)


@pytest.mark.parametrize(
    ("manifest", "locked", "words"),
    [
        ("{", None, r"package\.json cannot be read"),
        ('{"dependencies": ["left-pad"]}', None, "not an object of versions"),
        ('{"dependencies": {"left-pad": "file:x.tgz"}}', None, "which no hash of a registry pins"),
        ('{"dependencies": {"left-pad": "a/b#main"}}', None, "which no hash of a registry pins"),
        ('{"dependencies": {"left-pad": "2"}}', '{"packages": {}}', "locks other packages"),
        ('{"dependencies": {"left-pad": "2"}}', "{}", "no lock of npm 7 or newer"),
        ('{"dependencies": {"left-pad": "2"}}', "[]", "not a JSON object"),
    ],
)
def test_what_is_wrong_with_npms_files(
    node: Path, manifest: str, locked: str | None, words: str
) -> None:
    (node / "package.json").write_text(manifest)
    if locked is not None:
        (node / "package-lock.json").write_text(locked)
    with pytest.raises(UnciaError, match=words):
        package(node)


def test_what_a_bundler_has_put_in_is_not_installed(node: Path) -> None:
    (node / "index.js").write_text("exports.handler = () => 1;\n")
    assert npm.lock_path(node) is None
    (node / "other.mjs").write_text("import('left-pad/sub');\n")
    with pytest.raises(UnciaError, match=r"other\.mjs loads left-pad"):
        npm.lock_path(node)
    (node / "node_modules").mkdir()
    assert npm.lock_path(node) is None


def test_jars_are_locked_and_compiled_with(java: Path, cache: Path) -> None:
    needs_compiler("java")
    _needs("mvn")
    with pytest.raises(UnciaError, match=r"requirements\.lock is missing"):
        package(java)
    (written,) = lock(java)
    assert written.path == java / "requirements.lock"
    assert written.pins == ["org.json:json:20240303"]
    made = package(java)
    with zipfile.ZipFile(made.path) as archive:
        assert {"Handler.class", "lib/org.json.json-20240303.jar"} <= set(archive.namelist())
    text = written.path.read_text()
    written.path.write_text(text.replace(text[-9:-1], "0" * 8))
    with pytest.raises(UnciaError, match="has the SHA-256"):
        package(java)
    (java / "requirements.txt").write_text("org.json:no-such-artifact:1\n")
    with pytest.raises(UnciaError, match=r"Maven does not find org\.json:no-such-artifact:1"):
        lock(java)
    assert sorted(path.name for path in java.iterdir()) == [
        *("Handler.java", "requirements.lock", "requirements.txt")
    ]


@pytest.mark.parametrize(
    ("locked", "words"),
    [
        ("org.json:json:20240303\n", r"requirements\.lock:1: not group:artifact:version --hash"),
        ("", "does not pin org.json:json:20240303"),
        ("a:b:1 --hash=sha256:00\n", "not group:artifact:version"),
    ],
)
def test_what_is_wrong_with_a_lock_of_jars(java: Path, locked: str, words: str) -> None:
    (java / "requirements.lock").write_text(locked)
    with pytest.raises(UnciaError, match=words):
        package(java)


@pytest.mark.parametrize(("program", "folder"), [("npm", "node"), ("mvn", "java")])
def test_a_missing_program_is_named(
    program: str,
    folder: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnciaError, match=r"there is no (npm|Maven)") as refused:
        lock(request.getfixturevalue(folder))
    assert "apt-get install" in (refused.value.hint or "")


def test_what_is_no_artifact_is_told_with_its_line(java: Path) -> None:
    (java / "requirements.txt").write_text("org.json:json:20240303\nredis.clients:jedis\n")
    with pytest.raises(
        UnciaError, match=r"requirements\.txt:2: redis\.clients:jedis is no artifact"
    ):
        package(java)


def test_artifacts_with_classifiers_are_locked_and_fetched(java: Path) -> None:
    needs_compiler("java")
    _needs("mvn")
    (java / "requirements.txt").write_text(
        "org.json:json:20240303\norg.json:json:20240303:sources\n"
    )
    (written,) = lock(java)
    assert written.pins == ["org.json:json:20240303", "org.json:json:20240303:sources"]
    with zipfile.ZipFile(package(java).path) as archive:
        names = set(archive.namelist())
    assert {"lib/org.json.json-20240303.jar", "lib/org.json.json-20240303-sources.jar"} <= names
