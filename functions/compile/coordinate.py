"""Compiles a folder of C files with the function `compile`: the coordinator of online compiling.

    python coordinate.py FOLDER --function NAME --out PROGRAM [--jobs 8] [--flags=-O2] [--check]

It needs boto3, and finds the platform as AWS's SDK does, by AWS_ENDPOINT_URL_LAMBDA for instance.
The function must reach a store. Every file that ends in .c is compiled, so many at once as there
are jobs; all other files may be included, whatever they hold. Files and folders whose names begin
with a dot are left out, and PROGRAM, where it is in the folder. With --check it builds the same
here, and compares every byte. The program is not run.
"""

import argparse
import json
import sys
import tempfile
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "python"))

import toolchain

TIMEOUT_S = 900  # no function runs longer


class FailedError(Exception):
    """The function failed, or cannot be invoked; in its own words."""


def main(arguments=None):
    """Read the command line, and do what it says; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--function", default="compile")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--flags", default="-O2")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    try:
        files = read(given.folder, given.out)
        answer = coordinate(client(given.jobs), given.function, files, given.jobs, given.flags)
        program = b64decode(answer["content"])
        if given.check and program != local(files, given.flags):
            raise FailedError(
                f"the program differs from one built here by {toolchain.version()}: compilers and"
                " libraries of other versions make others"
            )
    except (FailedError, toolchain.CompileError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    given.out.write_bytes(program)
    given.out.chmod(0o755)
    print(f"{given.out}: {len(program):,} bytes, sha256 {answer['program']}")
    return 0


def read(folder, out):
    """The project's files, path -> bytes."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in name.parts)
        if path.is_file() and not is_hidden and path.resolve() != out.resolve():
            files[str(name)] = path.read_bytes()
    if not any(path.endswith(".c") for path in files):
        raise ValueError(f"there is no C file in {folder}")
    return files


def sent(content):
    """A file as the stage put takes it."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}


def client(jobs):
    """AWS's client of the platform."""
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"total_max_attempts": 1}, read_timeout=TIMEOUT_S, max_pool_connections=jobs
    )
    with as_failures():
        return boto3.client("lambda", config=config)


@contextmanager
def as_failures():
    """What the platform or AWS's client refuses, such as a function that is not there."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise FailedError(error) from None


def coordinate(api, function, files, jobs, flags):
    """Have a project compiled and linked; what link answers, with the program."""

    def invoke(**event):
        with as_failures():
            answer = api.invoke(FunctionName=function, Payload=json.dumps(event))
            content = json.loads(answer["Payload"].read())
        if "FunctionError" in answer:
            raise FailedError(content.get("errorMessage", content))
        return content

    contents = {path: sent(content) for path, content in files.items()}
    project = invoke(stage="put", contents=contents)

    def compile_one(source):
        headers = project["headers"]
        event = {"source": source, "headers": headers, "flags": flags, "reuse": True}
        return invoke(stage="compile", **event)["object"]

    with ThreadPoolExecutor(jobs) as pool:
        made = list(pool.map(compile_one, project["sources"]))
    return invoke(stage="link", sources=made, flags=flags, run=False, fetch=True)


def local(files, flags):
    """The program, built here by the same commands."""
    options = toolchain.checked_flags(flags)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as linked:
        folder = Path(name)
        toolchain.write(folder, files)
        sources = [path for path in files if path.endswith(".c")]
        made = [toolchain.compile_file(folder, path, options) for path in sources]
        return toolchain.link(Path(linked), made, options)


if __name__ == "__main__":
    sys.exit(main())
