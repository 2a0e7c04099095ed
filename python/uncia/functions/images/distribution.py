"""Pushes images to a registry, without a daemon.

By the API of the OCI distribution specification 1.1 (pushing, and deleting manifests), over HTTP.
Blobs are read from files and never held in memory.
"""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from uncia.errors import RunFailedError
from uncia.layouts import Image, blob
from uncia.units import MIB

CHUNK: Final = 64 * MIB
"""Blobs of more bytes are uploaded in pieces of so many, as some registries demand."""

_TIMEOUT_S: Final = 120
_BLOCK: Final = MIB
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_PAGE: Final = 1_000
_HINT: Final = "Is it a registry of images that asks for no credentials?"


def check(address: str) -> None:
    """Check that a registry answers at ``HOST:PORT``.

    Raises:
        RunFailedError: it does not, or not as a registry.
    """
    with _connected(address) as connection:
        _answer(connection, "GET", "/v2/", wanted=(200,))


def push(image: Image, address: str, repository: str, *, chunk: int = CHUNK) -> str:
    """Push an image of a layout; blobs that the registry has are not sent again.

    Args:
        image: in its layout.
        address: the registry, ``HOST:PORT``.
        repository: the name there.
        chunk: bytes of a piece, of blobs that have more.

    Returns:
        The image's reference, ``HOST:PORT/repository@sha256:...``.

    Raises:
        RunFailedError: the registry cannot be reached, refused something, or has something else
            than was sent; or a blob of the layout cannot be read.
    """
    manifest_path = blob(image.folder, image.digest)
    try:
        text = manifest_path.read_bytes()
        manifest = json.loads(text)
        with _connected(address) as connection:
            for part in (*manifest["layers"], manifest["config"]):
                path = blob(image.folder, part["digest"])
                _push_blob(connection, repository, path, part["digest"], chunk)
            # By a tag, which makes it findable for `empty`.
            tag = image.digest.removeprefix("sha256:")
            headers = {"Content-Type": manifest.get("mediaType", _MANIFEST)}
            _answer(
                connection,
                "PUT",
                f"/v2/{repository}/manifests/{tag}",
                wanted=(201,),
                headers=headers,
                body=text,
            )
    except (OSError, ValueError, KeyError) as error:
        raise RunFailedError(
            f"the image {image.folder} cannot be pushed to {address}: {error}"
        ) from error
    return f"{address}/{repository}@{image.digest}"


def empty(address: str, repository: str) -> None:
    """Delete all images of a repository; one that is not there is no error.

    Their blobs go when the registry next collects its garbage, as it always is with registries.

    Raises:
        RunFailedError: the registry cannot be reached, or does not delete all.
    """
    tags_before: list[str] = []
    with _connected(address) as connection:
        while True:
            path = f"/v2/{repository}/tags/list?n={_PAGE}"
            status, _, body = _answer(connection, "GET", path, wanted=(200, 404))
            tags = _tags(address, body) if status == 200 else []
            if not tags:
                return
            if tags == tags_before:
                raise RunFailedError(
                    f"the registry at {address} does not delete {repository}:{tags[0]}: it lists"
                    " the tag still",
                    "Delete the repository in the registry itself.",
                )
            tags_before = tags
            for tag in tags:
                _, headers, _ = _answer(
                    connection,
                    "HEAD",
                    f"/v2/{repository}/manifests/{tag}",
                    wanted=(200, 404),
                    headers={"Accept": _MANIFEST},
                )
                digest = headers.get("docker-content-digest")
                if digest is not None:
                    path = f"/v2/{repository}/manifests/{digest}"
                    _answer(connection, "DELETE", path, wanted=(202, 404))


def _tags(address: str, body: bytes) -> list[str]:
    """Return the tags that an answer lists, of which there may be none."""
    try:
        answer = json.loads(body)
        return [str(tag) for tag in answer.get("tags") or ()]
    except (ValueError, AttributeError, TypeError) as error:
        raise RunFailedError(
            f"the registry at {address} answered with what is no list of tags: {body[:100]!r}",
            _HINT,
        ) from error


def _push_blob(
    connection: http.client.HTTPConnection, repository: str, path: Path, digest: str, chunk: int
) -> None:
    """Send a blob unless the registry has it, in one piece or in several."""
    status, _, _ = _answer(
        connection, "HEAD", f"/v2/{repository}/blobs/{digest}", wanted=(200, 404)
    )
    if status == 200:
        return
    _, headers, _ = _answer(connection, "POST", f"/v2/{repository}/blobs/uploads/", wanted=(202,))
    location = _location(headers)
    size = path.stat().st_size
    is_whole = size <= chunk
    with path.open("rb") as file:
        for start in () if is_whole else range(0, size, chunk):
            count = min(chunk, size - start)
            content = {"Content-Range": f"{start}-{start + count - 1}"}
            _, headers, _ = _answer(
                connection,
                "PATCH",
                location,
                wanted=(202,),
                headers=content | _octets(count),
                body=_Part(file, count),
            )
            location = _location(headers)
        count = size if is_whole else 0
        joint = "&" if "?" in location else "?"
        _answer(
            connection,
            "PUT",
            f"{location}{joint}digest={urllib.parse.quote(digest)}",
            wanted=(201,),
            headers=_octets(count),
            body=_Part(file, count),
        )


def _octets(count: int) -> dict[str, str]:
    return {"Content-Type": "application/octet-stream", "Content-Length": str(count)}


class _Part:
    """The next bytes of a file, as http.client reads a body."""

    def __init__(self, file: IO[bytes], count: int) -> None:
        self._file: Final = file
        self._left = count

    def read(self, size: int = _BLOCK) -> bytes:
        block = self._file.read(min(size, self._left, _BLOCK))
        self._left -= len(block)
        return block


def _location(headers: Mapping[str, str]) -> str:
    """Return path and query of an upload, which the registry may give with its address."""
    parts = urllib.parse.urlsplit(headers.get("location", ""))
    if not parts.path:
        raise ValueError("the registry does not say where to upload to")
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


@contextmanager
def _connected(address: str) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection to a registry, whose errors become errors of Uncia."""
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    try:
        yield connection
    except (OSError, http.client.HTTPException) as error:
        raise RunFailedError(
            f"the registry at {address} cannot be asked: {error or type(error).__name__}", _HINT
        ) from error
    finally:
        connection.close()


def _answer(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    *,
    wanted: tuple[int, ...],
    headers: Mapping[str, str] | None = None,
    body: Any = None,
) -> tuple[int, dict[str, str], bytes]:
    """Send a request, and return status, headers (small letters) and body of its answer.

    Raises:
        RunFailedError: the status is none that is wanted.
    """
    connection.request(method, path, body, dict(headers or {}))
    answer = connection.getresponse()
    content = answer.read()
    if answer.status not in wanted:
        text = content.decode(errors="replace").strip()[:300]
        raise RunFailedError(
            f"the registry at {connection.host}:{connection.port} answered {method}"
            f" {path.partition('?')[0]} with {answer.status} {answer.reason}: {text}",
            _HINT,
        )
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content
