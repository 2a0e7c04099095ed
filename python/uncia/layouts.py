"""Writes and reads OCI image layouts: folders of blobs by digest, and an index.

After the OCI image specification 1.1. Layers are tar archives without compression: the same input
gives the same digests whatever compressor a machine has, and a platform on this machine unpacks
them sooner.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from uncia.errors import UnciaError

REF_NAME: Final = "org.opencontainers.image.ref.name"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_MARKER: Final = {"imageLayoutVersion": "1.0.0"}
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_CHUNK: Final = 1 << 20
TIME: Final = 315_532_800
"""The time of every file that the platform makes, 1980-01-01, as in packages: Unix time in s."""


@dataclass(frozen=True)
class Execution:
    """How an image is run.

    Attributes:
        entry_point: the program and its first arguments.
        command: further arguments; the program itself if there is no entry point.
        environment: variables.
        working_directory: where the program is started.
    """

    entry_point: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    working_directory: str = "/"

    def document(self) -> dict[str, Any]:
        """Return it as an image's configuration has it."""
        document: dict[str, Any] = {"WorkingDir": self.working_directory}
        if self.entry_point:
            document["Entrypoint"] = list(self.entry_point)
        if self.command:
            document["Cmd"] = list(self.command)
        if self.environment:
            document["Env"] = [f"{name}={value}" for name, value in self.environment.items()]
        return document

    @staticmethod
    def of(document: dict[str, Any]) -> Execution:
        """Read it from an image's configuration."""
        pairs = (variable.partition("=") for variable in document.get("Env") or ())
        return Execution(
            tuple(document.get("Entrypoint") or ()),
            tuple(document.get("Cmd") or ()),
            {name: value for name, _, value in pairs},
            document.get("WorkingDir") or "/",
        )


@dataclass(frozen=True)
class Layer:
    """A layer in a file of its own, which :func:`write_image` copies into a layout.

    Attributes:
        path: the blob.
        media_type: what it is; an archive without compression by default.
        diff_id: ``sha256:...`` of the archive without compression; None for one without.
    """

    path: Path
    media_type: str = _LAYER
    diff_id: str | None = None


@dataclass(frozen=True)
class Image:
    """An image in a layout.

    Attributes:
        folder: the layout.
        digest: of its manifest, ``sha256:...``.
        layers: the lowest first.
        execution: how it is run.
    """

    folder: Path
    digest: str
    layers: tuple[Layer, ...]
    execution: Execution

    @property
    def size(self) -> int:
        """Bytes of its layers, as they are kept."""
        return sum(layer.path.stat().st_size for layer in self.layers)


def write_image(
    folder: Path, layers: Sequence[Layer], execution: Execution, *, tag: str = "latest"
) -> Image:
    """Write a layout that holds one image.

    Args:
        folder: where; must not exist, or be an empty folder. Complete or not there at all.
        layers: the lowest first; blobs on the same file system are shared, not copied.
        execution: how it is run.
        tag: the image's name in the layout.

    Raises:
        UnciaError: the folder has something in it, or cannot be written.
    """
    with _new_folder(folder) as partial:
        blobs = partial / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        entries, diff_ids = [], []
        for layer in layers:
            entry = _add_file(blobs, layer.path, layer.media_type)
            entries.append(entry)
            diff_ids.append(layer.diff_id or entry["digest"])
        machine = platform.machine()
        config = {
            "architecture": ARCHITECTURES.get(machine, machine),
            "os": "linux",
            "config": execution.document(),
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _add_document(blobs, config, _CONFIG),
            "layers": entries,
        }
        described = _add_document(blobs, manifest, _MANIFEST)
        named = described | {"annotations": {REF_NAME: tag}}
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]}
        (partial / "index.json").write_text(json.dumps(index))
        (partial / "oci-layout").write_text(json.dumps(_MARKER))
    return read_image(folder)


def read_image(folder: Path, tag: str | None = None) -> Image:
    """Read the image of a layout: the one with a tag, or the only one.

    Raises:
        UnciaError: it is no layout, or has no such image, or several.
    """
    try:
        index = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        entries = index["manifests"]
        tags = [entry.get("annotations", {}).get(REF_NAME) for entry in entries]
        chosen = [e for e, t in zip(entries, tags, strict=True) if tag is None or t == tag]
        if len(chosen) != 1:
            known = ", ".join(str(tag) for tag in tags) or "none"
            raise UnciaError(
                f"{folder} has {'several images' if chosen else f'no image {tag}'}; it has {known}",
                hint=f"Name one behind the path, such as {folder}:{tags[0]}." if tags else None,
            )
        digest = chosen[0]["digest"]
        manifest = json.loads(blob(folder, digest).read_text(encoding="utf-8"))
        config = json.loads(blob(folder, manifest["config"]["digest"]).read_text(encoding="utf-8"))
        layers = tuple(
            Layer(blob(folder, layer["digest"]), layer["mediaType"], diff_id)
            for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True)
        )
        execution = Execution.of(config.get("config") or {})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnciaError(
            f"{folder} is no OCI image layout with an image for one platform: {error}"
        ) from error
    return Image(folder, digest, layers, execution)


def blob(folder: Path, digest: str) -> Path:
    """Return the file of a layout that has a digest.

    Raises:
        ValueError: it is no digest.
    """
    algorithm, _, digits = digest.partition(":")
    if algorithm != "sha256" or not digits.isalnum():
        raise ValueError(f"{digest!r} is no digest")
    return folder / "blobs" / "sha256" / digits


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder that gets the name once it is complete.

    Raises:
        UnciaError: there is something by that name, or it cannot be written.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UnciaError(
            f"{folder} exists already", hint="Choose another folder, or remove this one."
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            yield partial
            partial.chmod(0o755)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise UnciaError(f"{folder} cannot be written: {error.strerror or error}") from error


def _add_document(blobs: Path, document: dict[str, Any], media_type: str) -> dict[str, Any]:
    text = json.dumps(document, sort_keys=True).encode()
    digits = hashlib.sha256(text).hexdigest()
    (blobs / digits).write_bytes(text)
    return {"mediaType": media_type, "digest": f"sha256:{digits}", "size": len(text)}


def _add_file(blobs: Path, path: Path, media_type: str) -> dict[str, Any]:
    with path.open("rb") as file:
        digits = hashlib.file_digest(file, "sha256").hexdigest()
    target = blobs / digits
    if not target.exists():
        try:
            os.link(path, target)
        except OSError:
            shutil.copyfile(path, target)
    target.chmod(0o644)
    size = target.stat().st_size
    return {"mediaType": media_type, "digest": f"sha256:{digits}", "size": size}


class LayerWriter:
    """Writes a layer's archive; the same entries in the same order give the same bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        """Write to an open file; :meth:`close` ends the archive."""
        self._archive: Final = tarfile.TarFile(fileobj=file, mode="w", format=tarfile.PAX_FORMAT)
        self._folders: Final[set[str]] = set()

    def close(self) -> None:
        """End the archive."""
        self._archive.close()

    def __enter__(self) -> LayerWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_bytes(self, name: str, content: bytes, mode: int = 0o644) -> None:
        """Add a file, with the folders above it."""
        self._add(self._entry(name, mode, len(content)), io.BytesIO(content))

    def add_file(self, name: str, path: Path, mode: int = 0o644) -> None:
        """Add a copy of a file, with the folders above it."""
        with path.open("rb") as file:
            self._add(self._entry(name, mode, os.fstat(file.fileno()).st_size), file)

    def add_blocks(self, name: str, size: int, blocks: Iterator[bytes], mode: int = 0o644) -> None:
        """Add a file of ``size`` bytes that come in blocks, with the folders above it."""
        self._add(self._entry(name, mode, size), _Blocks(blocks))

    def add_link(self, name: str, target: str) -> None:
        """Add a symbolic link, with the folders above it."""
        entry = self._entry(name, 0o777, 0)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        self._add(entry, None)

    def add_folder(self, name: str, mode: int = 0o755) -> None:
        """Add a folder, with those above it, unless it is there."""
        if name in self._folders or not name:
            return
        self.add_folder(name.rpartition("/")[0])
        self._folders.add(name)
        entry = self._entry(name, mode, 0)
        entry.type = tarfile.DIRTYPE
        self._archive.addfile(entry)

    @staticmethod
    def _entry(name: str, mode: int, size: int) -> tarfile.TarInfo:
        entry = tarfile.TarInfo(name)
        entry.mode, entry.size, entry.mtime = mode, size, TIME
        return entry

    def _add(self, entry: tarfile.TarInfo, content: Any) -> None:
        self.add_folder(entry.name.rpartition("/")[0])
        self._archive.addfile(entry, content)


class _Blocks(io.RawIOBase):
    """A file that reads what an iterator yields."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._left = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._left) < size:
            block = next(self._blocks, b"")
            if not block:
                break
            self._left += block
        size = len(self._left) if size < 0 else size
        result, self._left = self._left[:size], self._left[size:]
        return result
