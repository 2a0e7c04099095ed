"""Cleaning up after runs that died: what their journals name is removed, tables are closed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final

from uncia import services
from uncia.errors import UnciaError
from uncia.platforms import adapter, processes
from uncia.platforms.journal import Orphan, Resource, Story, living, orphans, read
from uncia.runs import folder
from uncia.text import plural

# Resources of no platform: processes of the runner itself, such as the load generator.
LOCAL: Final = "local"


@dataclass
class Cleaned:
    """What was found and done.

    Attributes:
        runs: dead runs that were found.
        living: runs that still go on.
        failed: resources that are still there.
    """

    runs: list[str] = field(default_factory=list)
    living: list[str] = field(default_factory=list)
    failed: list[Resource] = field(default_factory=list)


def clean(*, dry_run: bool, log: Callable[[str], None]) -> Cleaned:
    """Remove what dead runs left.

    Args:
        dry_run: only say what there is.
        log: takes a line for everything found, done or not done.
    """
    done = Cleaned(living=[read(path).run for path in living()])
    for orphan in orphans():
        try:
            story = orphan.story
            done.runs.append(story.run)
            log(f"{story.run}: died and left {len(story.outstanding)} things")
            for resource in story.outstanding:
                log(f"  {resource.sentence()}")
            if not dry_run:
                done.failed.extend(_settle(orphan, log))
        finally:
            orphan.close()
    return done


def settle(path: Path, log: Callable[[str], None]) -> list[Resource]:
    """Remove what a dead run in a folder left, and close its tables; other runs are left alone.

    Args:
        path: the folder; of a run that goes on nothing is touched.
        log: takes a line for everything found, done or not done.

    Returns:
        What is still there.
    """
    failed: list[Resource] = []
    for orphan in orphans():
        try:
            if orphan.story.folder == path.resolve():
                log(f"{orphan.story.run} died; removing what it left")
                failed.extend(_settle(orphan, log))
        finally:
            orphan.close()
    return failed


def _settle(orphan: Orphan, log: Callable[[str], None]) -> list[Resource]:
    """Remove everything of one dead run; returns what is still there."""
    story = orphan.story
    gone: list[Resource] = []
    # The runner's own processes first: a load generator that still sends keeps a platform busy.
    ordered = sorted(
        story.outstanding, key=lambda resource: (resource.platform != LOCAL, resource.platform)
    )
    for platform, group in groupby(ordered, key=lambda resource: resource.platform):
        resources = list(group)
        if platform == LOCAL:
            gone.extend(_end_processes(resources, log))
            continue
        cleaner = services if platform == services.PLATFORM else adapter(platform)
        try:
            gone.extend(cleaner.clean(resources, lambda line: log(f"  {line}")))
        except UnciaError as error:
            log(f"  {error.message}")
    _close_tables(story, log)
    orphan.settle(gone)
    left = [resource for resource in story.outstanding if resource not in gone]
    for resource in left:
        log(f"  still there: {resource.sentence()}")
    return left


def _end_processes(resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    gone: list[Resource] = []
    for resource in resources:
        identity = processes.named(resource)
        if identity is not None and processes.alive(identity):
            log(f"  ending process {identity.pid}")
        if identity is None or processes.end(identity):
            gone.append(resource)
    return gone


def _close_tables(story: Story, log: Callable[[str], None]) -> None:
    """Turn the streams of the run's folder into tables and mark the run as crashed."""
    if story.folder is None or not story.folder.is_dir():
        return
    try:
        rows = folder.recover(story.folder)
    except UnciaError as error:
        log(f"  {error.message}")
        return
    if rows:
        log(f"  {plural(sum(rows.values()), 'row')} recovered in {story.folder}")
