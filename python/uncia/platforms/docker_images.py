"""A function's image as the archive that an Engine of Docker loads, without a registry.

The layers are those of an OCI layout, and one more: the shim that serves the function. The format
is that of ``docker save`` (Docker Image Specification 1.2), which every Engine takes.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia.errors import UnciaError
from uncia.layouts import ARCHITECTURES, Image, LayerWriter
from uncia.platforms.bare import SHIMS

FOLDER: Final = "var/runtime/uncia"
"""Where the shim is in an image."""
_BLOCK: Final = 1 << 20
_RECORD: Final = 512

SERVERS: Final[Mapping[str, tuple[str, str]]] = {
    "python": ("python3", "python_handler.py"),
    "node": ("node", "node_handler.cjs"),
}
"""The interpreter and the shim of a language, for functions in containers."""


@dataclass(frozen=True)
class Archive:
    """An image for an Engine.

    Attributes:
        name: with its tag.
        config: its configuration, whose digest is the image's id.
        layers: the lowest first: bytes, or the file that has them.
    """

    name: str
    config: bytes
    layers: tuple[bytes | Path, ...]

    def blocks(self) -> Iterator[bytes]:
        """The archive, block by block; never held as a whole."""
        config = f"{hashlib.sha256(self.config).hexdigest()}.json"
        names = [f"{position}/layer.tar" for position in range(len(self.layers))]
        manifest = [{"Config": config, "RepoTags": [self.name], "Layers": names}]
        yield from _entry(config, self.config)
        for name, layer in zip(names, self.layers, strict=True):
            yield from _entry(name, layer)
        yield from _entry("manifest.json", json.dumps(manifest).encode())
        yield bytes(2 * _RECORD)


def archive(function: str, image: Image, language: str, labels: Mapping[str, str]) -> Archive:
    """The image of a function.

    Args:
        function: its name.
        image: its root and its code.
        language: one of `SERVERS`.
        labels: of the image.

    Raises:
        UnciaError: the image cannot be read.
    """
    program, shim = SERVERS[language]
    buffer = io.BytesIO()
    with LayerWriter(buffer) as writer:
        writer.add_file(f"{FOLDER}/{shim}", SHIMS / shim)
    added = buffer.getvalue()
    ids = []
    for layer in image.layers:
        if not layer.path.is_file() or layer.diff_id is None:
            raise UnciaError(f"{function}: {image.folder} lacks the layer {layer.path.name}")
        ids.append(layer.diff_id)
    machine = platform.machine()
    execution = image.execution.document() | {
        "Entrypoint": [program, f"/{FOLDER}/{shim}"],
        "Labels": dict(labels),
    }
    execution.pop("Cmd", None)
    config: dict[str, Any] = {
        "architecture": ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": execution,
        "rootfs": {
            "type": "layers",
            "diff_ids": [*ids, f"sha256:{hashlib.sha256(added).hexdigest()}"],
        },
    }
    layers: tuple[bytes | Path, ...] = (*(layer.path for layer in image.layers), added)
    return Archive(tag(function), json.dumps(config, sort_keys=True).encode(), layers)


def tag(function: str) -> str:
    """What an Engine calls a function's image; names of images have no capitals."""
    plain = re.sub(r"[^a-z0-9]+", "-", function.lower()).strip("-")
    digest = hashlib.sha256(function.encode()).hexdigest()[:8]
    return f"uncia/{plain}-{digest}:latest"


def _entry(name: str, content: bytes | Path) -> Iterator[bytes]:
    """An archive's entry: its head, its content and the bytes that fill its last record."""
    info = tarfile.TarInfo(name)
    info.size = len(content) if isinstance(content, bytes) else content.stat().st_size
    yield info.tobuf()
    if isinstance(content, bytes):
        yield content
    else:
        with content.open("rb") as file:
            while block := file.read(_BLOCK):
                yield block
    if info.size % _RECORD:
        yield bytes(_RECORD - info.size % _RECORD)
