"""Removal of what runs in containers have made: servers, containers, images and control groups."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from uncia.platforms import groups, processes
from uncia.platforms.journal import Resource
from uncia.platforms.shims import docker_engine
from uncia.platforms.shims.docker_engine import Engine, EngineError

LABEL: Final = "uncia.function"
"""Of containers and images: the name of their function, by which they are known to be a run's."""
SLICE: Final = "slice"
"""In a group's detail: the slice of systemd that it is, where that made it."""
_STOP_TIMEOUT_S: Final = 30.0
_ORDER: Final = ("process", "function", "group")
"""Of removal: what makes others first."""


def clean(resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    """End servers, and remove containers, images and groups; returns what is gone."""
    removed = []
    for resource in sorted(resources, key=lambda it: _ORDER.index(it.kind)):
        if resource.kind == "process":
            identity = processes.named(resource)
            is_gone = identity is None or processes.end(identity)
        elif resource.kind == "group":
            is_gone = _clean_group(resource)
        else:
            is_gone = _clean_function(resource, log)
        if is_gone:
            removed.append(resource)
        else:
            log(f"{resource.sentence()} could not be removed")
    return removed


def _clean_group(resource: Resource) -> bool:
    """Remove the group that the containers of a function were in; returns whether it is gone.

    It is, too, if it is empty and the Engine's: to remove that takes rights that the use of the
    Engine does not, and nothing is counted in it any more.
    """
    name = resource.detail.get(SLICE)
    folders = groups.folders(resource.id, every=True) if name is None else _slices(str(name))
    if name is not None and folders:
        # It is systemd's, which would keep it as one that is there.
        _stop(str(name))
    # All, though one should fail.
    gone = [groups.remove(it) or _is_foreign(it) for it in folders]
    return all(gone)


def _is_foreign(folder: Path) -> bool:
    return not os.access(folder.parent, os.W_OK) and groups.is_empty(folder)


def _slices(name: str) -> list[Path]:
    """The folders of a slice: of the machine's systemd, and of that of this user."""
    user = os.getuid()
    rootless = f"user.slice/user-{user}.slice/user@{user}.service/{name}"
    return [*groups.at(name, every=True), *groups.at(rootless, every=True)]


def _stop(name: str) -> None:
    """Have systemd stop a slice with what is in it, where it runs; the user's, unless for root."""
    whose = [] if os.geteuid() == 0 else ["--user"]
    # What is still there afterwards is seen.
    try:
        subprocess.run(
            ["systemctl", *whose, "stop", name],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_STOP_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return


def _clean_function(resource: Resource, log: Callable[[str], None]) -> bool:
    """Remove the containers and the image of a function, by its label; returns whether they are."""
    engine = Engine(resource.detail["socket"])
    label = f"{LABEL}={resource.id}"
    try:
        for name in docker_engine.containers(engine, label):
            docker_engine.remove_container(engine, name)
        for name in docker_engine.images(engine, label):
            docker_engine.remove_image(engine, name)
    except EngineError as error:
        log(error.message if error.hint is None else f"{error.message}. {error.hint}")
        return False
    return True
