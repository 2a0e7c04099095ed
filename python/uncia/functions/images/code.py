"""Lays a function's code over a root: an image of the root's layers and one more."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from uncia import engine
from uncia.cache import cache_folder, create_once
from uncia.errors import UnciaError
from uncia.functions.form import BOOTSTRAP, Function
from uncia.functions.images.debian import machine_suite, make_root
from uncia.functions.package import FILLER_NAME, Package, filler_blocks, package
from uncia.layouts import (
    Execution,
    Image,
    Layer,
    LayerWriter,
    read_image,
    write_image,
)

TASK: Final = "var/task"
_RUNTIME: Final = "var/runtime"
_EXECUTABLE: Final = 0o111
_PACKAGES: Final = {"node": "nodejs", "java": "default-jre-headless"}
"""Debian's packages of interpreters that are named otherwise."""

_STATIC: Final = ("go", "provided")
"""Runtimes whose functions are programs of their own, which need no root."""


_EMPTY: Final = Image(
    Path("/nonexistent"),
    "",
    (),
    Execution(environment={"PATH": "/usr/local/bin:/usr/bin:/bin"}),
)
"""What a program that needs no root is laid over."""


@dataclass(frozen=True)
class _Client:
    """A runtime's client of the Runtime API: how it is started, its file's name and text."""

    interpreter: tuple[str, ...]
    file: str
    text: str


def lay_over(
    function: str | os.PathLike[str] | Function,
    root: Path | None,
    out: Path,
    runtime: str | None = None,
    *,
    root_tag: str | None = None,
    python_version: str | None = None,
    filler: int = 0,
    invokes: bool = False,
    tag: str = "latest",
) -> Image:
    """Write an image: a root's layers, and above them a function with its runtime's client.

    The filler is a layer of its own, written as it is made and never held in memory.

    Args:
        function: a name in the catalogue, a folder, or a loaded function.
        root: a layout whose image has the runtime's interpreter; None: an empty one, for programs
            that need none.
        out: the new layout's folder; must not exist, or be empty.
        runtime: such as ``python``; by default the function's first.
        root_tag: the root's image; by default the only one.
        python_version: ``major.minor`` of the root's Python, if the function has requirements.
        filler: bytes of incompressible data to add.
        invokes: add what it takes to invoke other functions.
        tag: the new image's.

    Raises:
        UnciaError: no such function or root, the root has no interpreter for it, or the layout
            cannot be written.
    """
    base = _EMPTY if root is None else read_image(root, root_tag)
    built = package(function, runtime, python_version=python_version, invokes=invokes)
    with tempfile.TemporaryDirectory(prefix="uncia-image-") as folder:
        layer = Path(folder) / "code.tar"
        with layer.open("wb") as file, LayerWriter(file) as writer:
            execution = _add_code(writer, built, base, root)
        layers = [*base.layers, Layer(layer)]
        if filler:
            layers.append(Layer(_filler_layer(filler)))
        return write_image(out, layers, execution, tag=tag)


def image_of(
    function: Function,
    layout: Path | None = None,
    runtime: str | None = None,
    *,
    filler: int = 0,
    invokes: bool = False,
) -> tuple[Image, Package]:
    """Return a function's image over its root, from the cache if it was made before.

    Args:
        function: whose ``root`` counts unless a layout is given; one without has its runtime's.
        layout: the root.
        runtime: such as ``python``; by default the function's first.
        filler: bytes of incompressible data to add.
        invokes: add what it takes to invoke other functions.

    Returns:
        The image in the cache, to be read only, and the package that is in it.

    Raises:
        UnciaError: as :func:`lay_over` and :func:`~uncia.functions.images.debian.make_root`.
    """
    built = package(function, runtime, invokes=invokes)
    root = layout or _root(function, built.runtime)
    client = "" if built.runtime in _STATIC else repr(_client(built.runtime))
    base = _EMPTY if root is None else read_image(root)
    identity = f"{base.digest} {built.sha256} {built.runtime} {client} {filler}"
    path = cache_folder("images") / hashlib.sha256(identity.encode()).hexdigest()[:32]

    def make(partial: Path) -> None:
        lay_over(function, root, partial, runtime, filler=filler, invokes=invokes)

    create_once(path, make)
    return read_image(path), built


def _root(function: Function, runtime: str) -> Path | None:
    """The layout of a function's root, or else of its runtime's, made of packages now or before.

    None if it needs none.
    """
    root = function.root
    if root is None:
        if runtime in _STATIC:
            return None
        program = _client(runtime).interpreter[0]
        return _root_of([_PACKAGES.get(program, program)], None)
    if root.layout is not None:
        return function.folder / root.layout
    return _root_of(root.packages, root.suite)


def _root_of(packages: Sequence[str], suite: str | None) -> Path:
    # Packages change under their names: a root that nobody has used for a month is made anew.
    identity = f"{platform.machine()} {suite or machine_suite()} {sorted(packages)}"
    path = cache_folder("roots") / hashlib.sha256(identity.encode()).hexdigest()[:32]

    def make(partial: Path) -> None:
        make_root(packages, partial, suite)

    return create_once(path, make)


def _filler_layer(size: int) -> Path:
    """The archive of a layer that is incompressible data alone, made now or before."""

    def make(partial: Path) -> None:
        with partial.open("wb") as file, LayerWriter(file) as writer:
            writer.add_blocks(f"{TASK}/{FILLER_NAME}", size, filler_blocks(size))

    return create_once(cache_folder("fillers") / f"{size}.tar", make)


def _add_code(writer: LayerWriter, built: Package, base: Image, root: Path | None) -> Execution:
    """Add a function to a layer, and return how it is started."""
    with zipfile.ZipFile(built.path) as archive:
        names = set(archive.namelist())
        for entry in archive.infolist():
            mode = 0o755 if entry.external_attr >> 16 & _EXECUTABLE else 0o644
            with archive.open(entry) as content:
                blocks = iter(lambda content=content: content.read(1 << 20), b"")  # type: ignore[misc]
                writer.add_blocks(f"{TASK}/{entry.filename}", entry.file_size, blocks, mode)
    variables = base.execution.environment
    if built.runtime in _STATIC:
        return Execution((f"/{TASK}/{BOOTSTRAP}",), (), variables, f"/{TASK}")
    client = _client(built.runtime)
    program = client.interpreter[0]
    if not _has_program(base.layers, program):
        raise UnciaError(
            f"the root {root} has no {program}, which starts functions in {built.runtime}",
            hint="Make a root with its package, for example `uncia functions root"
            f" {_PACKAGES.get(program, program)} --out ./root`.",
        )
    if built.handler in names:  # a file: a server
        entry_point = (*client.interpreter, f"/{TASK}/{built.handler}")
        return Execution(entry_point, (), variables, f"/{TASK}")
    writer.add_bytes(f"{_RUNTIME}/{client.file}", client.text.encode())
    entry_point = (*client.interpreter, f"/{_RUNTIME}/{client.file}")
    return Execution(entry_point, (built.handler,), variables, f"/{TASK}")


def _client(runtime: str) -> _Client:
    """Ask the engine for a runtime's client.

    Raises:
        UnciaError: it has none.
    """
    process = subprocess.run(
        [engine.binary(), "schema", "clients"],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    clients = {
        document["runtime"]: _Client(
            tuple(document["interpreter"]), document["file"], document["text"]
        )
        for document in json.loads(process.stdout)
    }
    if runtime not in clients:
        raise UnciaError(
            f"functions in {runtime} cannot be laid over a root; those in"
            f" {', '.join([*clients, 'provided'])} can"
        )
    return clients[runtime]


def _has_program(layers: Iterable[Layer], program: str) -> bool:
    """Whether one of the layers has a program of that name, as far as they can be read."""
    for layer in layers:
        try:
            with tarfile.open(layer.path) as archive:
                for entry in archive:
                    if entry.name.endswith(f"bin/{program}"):
                        return True
        except tarfile.ReadError:
            return True  # compressed as this Python cannot read
    return False
