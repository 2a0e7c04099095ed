"""The stages of online compiling: a project's files are compiled, their objects linked."""

import json
import tempfile
from base64 import b64decode, b64encode
from pathlib import Path

import objects
import project
import toolchain
from uncia_envelope import Choice, Parameter, enveloped


class Given:
    """An object or a list, or JSON text of it; empty text is the default of neither."""

    default, echoes = "", False

    def __init__(self, kind):
        self.kind = kind

    def read(self, name, given):
        value = given
        if given == "":
            return given
        if isinstance(given, str):
            try:
                value = json.loads(given)
            except ValueError:
                value = None
        if type(value) is not self.kind:
            what = "a list" if self.kind is list else "an object"
            raise ValueError(f"{name}: it is not {what}")
        return value


@enveloped(
    {
        "stage": Choice("generate", ("generate", "put", "compile", "link", "build")),
        "files": Parameter(8, 1, 1000),
        "size": Parameter(20, 1, 10_000),
        "seed": Parameter(1, 0, 1_000_000),
        "contents": Given(dict),
        "source": Given(dict),
        "sources": Given(list),
        "headers": Given(list),
        "flags": Choice("-O2"),
        "reuse": Choice(False, (True, False)),
        "run": Choice(True, (True, False)),
        "fetch": Choice(False, (True, False)),
        "expected": Choice(""),
        "program": Choice(""),
    }
)
def handler(
    stage,
    files,
    size,
    seed,
    contents,
    source,
    sources,
    headers,
    flags,
    reuse,
    run,
    fetch,
    expected,
    program,
):
    if stage == "generate":
        made, included, output = project.generate(files, size, seed)
        result = {**keep({**made, **included}), "expected": objects.digest(output.encode())}
    elif stage == "put":
        result = keep(contents or {})
    elif stage == "compile":
        result = compile_one(source, headers or [], flags, reuse)
    else:
        parts = sources or []
        if stage == "build":
            parts = [compile_one(it, headers or [], flags, False)["object"] for it in parts]
        result = link(parts, flags, run, fetch)
        # A program may end with any code of its own.
        if expected and result.get("exit_code", 0) < 0:
            raise ValueError(f"the program was ended by signal {-result['exit_code']}")
        for name, wanted in (("program", program), ("printed", expected)):
            if wanted and name not in result:
                raise ValueError("expected: the program is not run, so that it prints nothing")
            if wanted and result[name] != wanted:
                raise ValueError(f"{name} has the SHA-256 {result[name]}, not {wanted}")
    return {"stage": stage, **result}, True


def keep(files):
    """Leave a project's files in the store: its C files, and what they may include."""
    if not files:
        raise ValueError("contents: there is no file")
    kept = {"sources": [], "headers": []}
    for path, given in files.items():
        toolchain.checked_path(path)
        kind = "sources" if path.endswith(".c") else "headers"
        kept[kind].append({"path": path, "sha256": objects.put(content_of(path, given))})
    return kept


def content_of(path, given):
    """The bytes of a file of a project, which is given as a text or, under base64, as bytes."""
    if isinstance(given, str):
        return given.encode()
    encoded = given.get("base64") if isinstance(given, dict) and len(given) == 1 else None
    try:
        return b64decode(encoded, validate=True)
    except (TypeError, ValueError):
        raise ValueError(f"contents: {path!r} is neither a text nor bytes in base64") from None


def compile_one(source, headers, flags, reuse):
    if not source:
        raise ValueError("source: name what is to be compiled, with path and sha256")
    options = toolchain.checked_flags(flags)
    action = [toolchain.version(), toolchain.ENVIRONMENT, options, source, headers]
    if reuse and (known := objects.made(action)) is not None:
        return {"object": known["object"], "reused": True}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contents = {it["path"]: objects.get(it["sha256"]) for it in [*headers, source]}
        toolchain.write(folder, contents)
        made = objects.put(toolchain.compile_file(folder, source["path"], options))
    objects.note(action, {"object": made})
    return {"object": made, "reused": False}


def link(parts, flags, run, fetch):
    if not parts:
        raise ValueError("sources: there is nothing to link")
    options = toolchain.checked_flags(flags)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = toolchain.link(folder, [objects.get(part) for part in parts], options)
        result = {"program": objects.put(content), "bytes": len(content)}
        if run:
            printed, exit_code = toolchain.run(folder)
            result |= {"printed": objects.digest(printed), "exit_code": exit_code}
    if fetch:
        result["content"] = b64encode(content).decode()
    return result
