"""Blocks of code of the documentation, what their comments ask for, and how each kind is run.

A comment directly above a block says how it is run; who reads the page does not see it:

=====================  ============================================================================
``not run: REASON``    not at all, for this reason
``long: REASON``       in the long form alone (``make docs``)
``root``               as root alone: it makes control groups
``run by: FILE``       by this test, which reads the page
``page run by: FILE``  in the first line: every block of the page, by this test
``usage``              not at all: a synopsis. Its commands and options must exist
``file: NAME``         written to this file, for the blocks that follow; Python is not run
``first: COMMAND``     after this command, which makes what a reader is taken to have
``with: RUN OPTIONS``  with these options besides, after those of every ``uncia run``; several
                       commands stand between semicolons. PID is a new number each time
``without: RUN, WHY``  without running ``uncia run``, for this reason
``runs on``            started, and left running to the end of the page
``part of: PAGE, AT``  a piece of the first complete file in that page of the reference, where AT is
                       a key path; of several alternatives each must fit
=====================  ============================================================================
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typer.core import TyperGroup
from typer.main import get_command

from uncia import cli, yamlio
from uncia.experiment import checks, sweep
from uncia.experiment.planning import plan
from uncia.experiment.simulation import SimulationFile
from uncia.experiment.sources import Sources
from uncia.profiles import Profile
from uncia.suites import emulated
from uncia.suites.forms import Entry
from uncia.suites.forms import Suite as SuiteForm
from uncia.suites.locality import LocalityFile
from uncia.suites.traced import TraceFile
from uncia.tariffs import Tariff
from uncia.workload import model as workloads

ROOT: Final = Path(__file__).parents[2]
GENERATED: Final = {
    Path("docs/reference/cli.md"),
    Path("docs/explanation/cpu-bandwidth-control.md"),
}
LANGUAGES: Final = ("console", "go", "python", "yaml", "json", "sql", "rust", "js", "text")
DIRECTIVES: Final = {
    *("not run", "long", "root", "run by", "usage", "file", "first", "with", "without"),
    *("runs on", "part of", "page run by"),
}

_FENCE: Final = re.compile(r"^( *)```(\w*)$")
_COMMENT: Final = re.compile(r"^ *<!-- ([a-z ]+?)(?:: (.*))? -->$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with the comments above it."""

    page: Path
    line: int
    language: str
    code: str
    comments: dict[str, str]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command line of a block and the output that the page quotes; None where it quotes none."""

    line: str
    output: str | None


def pages() -> list[Path]:
    """The README and every page of the documentation that is written by hand, from the root."""
    result = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for file in result if (page := file.relative_to(ROOT)) not in GENERATED]


def blocks(page: Path, text: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    of_page: dict[str, str] = {}
    comments: dict[str, str] = {}
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence:
            indent = len(fence[1])
            code = []
            for _, inner in lines:
                if inner.strip() == "```":
                    break
                code.append(inner[indent:])
            yield Block(page, number, fence[2], "".join(f"{item}\n" for item in code), comments)
        comment = _COMMENT.match(line)
        if comment and comment[1] in DIRECTIVES:
            if comment[1] == "page run by":
                of_page = {"run by": comment[2] or ""}
            comments = comments | {comment[1]: comment[2] or ""}
        elif line.strip():
            comments = of_page


def commands(code: str) -> list[Command]:
    """The commands of a console block: those after ``$``, with their output, or else every line."""
    joined = code.replace("\\\n", " ")
    if not re.search(r"^\$ ", joined, re.MULTILINE):
        return [Command(line, None) for line in joined.splitlines() if line.strip()]
    made = []
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        made.append(Command(line, output or None))
    return made


def folded(text: str) -> str:
    """Output to compare: tables and wrapped lines differ with the width of the terminal."""
    return " ".join(text.split())


def uncia_commands(text: str) -> Iterator[list[str]]:
    """The words of every command ``uncia`` in a text, and of those in its pipes."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"\||;|&&|\$\(|>", line):
            match = re.match(r"(?:[\w-]*\$ )?\s*(?:run: )?(?:\.venv/bin/)?(uncia(?: .*)?)$", part)
            if match:
                plain = re.sub(r"\s#.*| … ?|[\[\]]", " ", match[1])
                try:
                    yield shlex.split(plain)
                except ValueError:  # a quotation that ends on another line
                    yield plain.split()


def fault(words: list[str]) -> str | None:
    """What the command line does not know of a command: a subcommand or an option."""
    command: Any = _root()
    rest = words[1:]
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name.isupper():  # a placeholder
            return None
        if name not in command.commands:
            return f"there is no command {name} in {' '.join(words)}"
        command = command.commands[name]
    known = {"--help", "-h"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    for word in rest:
        option = word.split("=")[0]
        if re.match(r"--?[a-z]", option) and option not in known:
            return f"there is no option {option} in {' '.join(words)}"
    return None


def inline(text: str) -> Iterator[str]:
    """Commands quoted within the prose."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for quoted in re.findall(r"`(uncia [^`]+)`", prose):
        yield " ".join(quoted.split())


def check_yaml(block: Block, folder: Path) -> None:
    """Check a YAML block, a file in the folder, as the command that takes such a file does.

    Raises:
        UnciaError: with the line and key of what is wrong.
    """
    if "part of" in block.comments:
        page, _, at = block.comments["part of"].partition(", ")
        for alternative in _alternatives(block.code):
            piece = yamlio.load(alternative, str(block)).data
            _check(_merge(_complete(page, "yaml"), piece, at), block, folder)
    else:
        _check(yamlio.load(block.code, str(block)).data, block, folder)


def _check(data: Any, block: Block, folder: Path) -> None:
    document = yamlio.load(yamlio.dump(data), str(block))
    if "charges" in data:
        yamlio.validate(Tariff, document)
    elif "product" in data:
        yamlio.validate(Profile, document)
    elif "shows" in data:
        yamlio.validate(Entry, document)
    elif "citation" in data:
        yamlio.validate(SuiteForm, document)
    elif "synthetic" in data:
        yamlio.validate(TraceFile, document)
    elif "structure" in data:
        yamlio.validate(LocalityFile, document)
    elif "cluster" in data:
        if sweep.KEY in document.data:
            sweep.points(document)
        else:
            yamlio.validate(SimulationFile, document)
    elif "experiments" in data:
        document = emulated.expand(document)
        file = checks.check(document)
        plan(file, Sources(document, folder))
    else:
        workloads.check(document)


def _alternatives(code: str) -> list[str]:
    """The block, or if a key stands twice at its left edge, one document for each time."""
    keys = re.findall(r"^(\w+):", code, re.MULTILINE)
    if len(keys) == len(set(keys)):
        return [code]
    return re.split(rf"^(?={keys[0]}:)", code, flags=re.MULTILINE)[1:]


def load_config(block: Block) -> dict[str, Any]:
    """The configuration of a load that a JSON block is, or is a part of."""
    code = block.code if block.code.startswith("{") else f"{{{block.code}}}"
    piece: dict[str, Any] = json.loads(code)
    if "part of" not in block.comments:
        return piece
    page, _, at = block.comments["part of"].partition(", ")
    return _merge(_complete(page, "json"), piece, at)


def _complete(page: str, language: str) -> dict[str, Any]:
    text = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    first = next(b for b in blocks(Path(page), text) if b.language == language)
    assert "part of" not in first.comments
    data: dict[str, Any] = yamlio.load(first.code, page).data
    return data


def _merge(whole: dict[str, Any], piece: dict[str, Any], at: str) -> dict[str, Any]:
    """The complete file with the piece's keys in it: at the top, added to what is there."""
    target: Any = whole
    for key in filter(None, at.split(".")):
        target = target[int(key)] if isinstance(target, list) else target[key]
    if "kind" in piece:  # a process of arrivals, which has other keys than the one before
        target.clear()
    for key, value in piece.items():
        old = target.get(key)
        both = isinstance(old, dict) and isinstance(value, dict) and "kind" not in value and not at
        target[key] = {**old, **value} if both else value
    if "closed" in piece:
        target.pop("arrivals", None)
    return whole


_built: list[TyperGroup] = []


def _root() -> TyperGroup:
    if not _built:
        root = get_command(cli.build())
        assert isinstance(root, TyperGroup)
        _built.append(root)
    return _built[0]
