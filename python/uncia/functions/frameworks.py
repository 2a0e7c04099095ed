"""Installs frameworks that serve functions: ``python -m uncia.functions.frameworks [NAME ...]``.

Each from what its folder pins, into the user's cache, once. The platform ``server`` runs them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from uncia.cache import create_once
from uncia.errors import UnciaError
from uncia.functions import dependencies, golang, npm
from uncia.platforms import frameworks


def install(name: str) -> Path:
    """Install a framework, unless it is; returns its folder.

    Raises:
        UnciaError: something that it takes is missing, or an installation failed.
    """
    framework = frameworks.get(name)

    def make(partial: Path) -> None:
        partial.mkdir()
        target = dependencies.Target.of(None, None)
        folders = []
        if framework.install.python is not None:
            folders.append(dependencies.install(framework.folder / "requirements.txt", target))
        if framework.install.npm is not None:
            folders.append(npm.install(framework.folder / npm.LOCK_NAME, target))
        for folder in folders:
            # The same files: what is in the cache is never changed.
            shutil.copytree(folder, partial / "packages", copy_function=os.link)
        if framework.install.go is not None:
            program = partial / "program"
            golang.build_pinned(framework.folder, framework.install.go, program, name)

    return create_once(framework.place(), make)


def main() -> None:
    """Install those that are named; without a name, all."""
    parser = argparse.ArgumentParser(
        prog="python -m uncia.functions.frameworks",
        description="Installs frameworks that serve functions, for the platform server, into the"
        f" user's cache. There are {', '.join(frameworks.names())}.",
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="which; all if left out")
    failed = False
    for name in parser.parse_args().names or frameworks.names():
        try:
            print(f"{name}: {install(name)}")
        except UnciaError as error:
            # The others may do.
            failed = True
            print("\n".join(text for text in (error.message, error.hint) if text), file=sys.stderr)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
