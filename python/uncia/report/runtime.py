"""The script that draws a page's charts, bundled once and kept in the user's cache folder."""

import hashlib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from uncia.cache import cache_folder, create_once
from uncia.errors import UnciaError

VEGA_LITE: Final = "6.4"
"""The version of Vega-Lite that charts are written for."""


@cache
def script() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script that sets ``window.vegaEmbed``.

    It is cached because bundling takes two seconds of CPU, longer than the rest of a report.
    """
    try:
        bundle = _cached()
    except (UnciaError, RuntimeError):  # the cache cannot be written, or there is no home
        bundle = _bundle()
    return bundle.decode().replace("</script", "<\\/script")


def _cached() -> bytes:
    bundler = metadata.version("vl-convert-python")
    path = cache_folder("charts") / f"vega-lite-{VEGA_LITE}-by-{bundler}.js"

    def make(partial: Path) -> None:
        bundle = _bundle()
        partial.write_bytes(_checksum(bundle) + b"\n" + bundle)

    checksum, _, bundle = create_once(path, make).read_bytes().partition(b"\n")
    if checksum != _checksum(bundle):  # the machine stopped before the file was on the disk
        path.unlink(missing_ok=True)
        return create_once(path, make).read_bytes().partition(b"\n")[2]
    return bundle


def _bundle() -> bytes:
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", VEGA_LITE)
    return bundle.encode()


def _checksum(bundle: bytes) -> bytes:
    return hashlib.sha256(bundle).hexdigest().encode()
