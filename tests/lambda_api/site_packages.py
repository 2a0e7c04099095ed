"""Packages of the tests' own Python, as layers of functions."""

import importlib.util
import io
import os
import zipfile
from pathlib import Path
from typing import Final

# Folders of packages that functions never import, and that take long to compile.
LEFT_OUT: Final = {
    "tests",
    "__pycache__",
    "include",
    "f2py",
    "quantization",
    "transformers",
    "tools",
}
OF_COMPILERS: Final = {".pyi", ".a", ".pc", ".h"}


def is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def layer(*names: str) -> bytes:
    """A layer's zip file of packages, with the libraries that lie beside them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in names:
            module = importlib.util.find_spec(name)
            assert module is not None
            assert module.origin is not None
            package = Path(module.origin).parent
            for folder in (package, package.with_name(f"{name}.libs")):
                for parent, folders, files in os.walk(folder):
                    folders[:] = [it for it in folders if it not in LEFT_OUT]
                    for file in files:
                        path = Path(parent) / file
                        if path.suffix in OF_COMPILERS:
                            continue
                        archive.write(path, "python" / path.relative_to(package.parent))
    return buffer.getvalue()
