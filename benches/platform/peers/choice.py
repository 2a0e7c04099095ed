"""Which peers a bench measures: its options, and the peers installed by them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from . import Peer, functions_framework, workerd
from . import runtime_interface_emulator as emulator

PEERS: Final[tuple[Peer, ...]] = (emulator, functions_framework, workerd)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--peer``, ``--no-peers`` and ``--cache``; without the first two it is all peers."""
    parser.add_argument("--peer", action="append", choices=[peer.NAME for peer in PEERS])
    parser.add_argument("--no-peers", action="store_true")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    parser.add_argument("--cache", type=Path, default=Path(cache) / "uncia-bench")


def install(options: argparse.Namespace) -> dict[Peer, Path]:
    """Install those of the chosen peers that are missing; gives each one's folder."""
    folders: dict[Peer, Path] = {}
    for peer in PEERS:
        if not options.no_peers and (not options.peer or peer.NAME in options.peer):
            folders[peer] = options.cache.resolve() / peer.__name__.rpartition(".")[2]
            peer.install(folders[peer])
    return folders
