"""Kernel versions that differ in their bandwidth control, and the kernel of this machine.

| from | what                                                                                    |
|------|-----------------------------------------------------------------------------------------|
| 5.4  | local runtime does not expire with its period; older kernels are not modelled           |
| 6.4  | a group's period timer starts at a random offset (``init_cfs_bandwidth``); before, its  |
|      | grid was whole periods of the monotonic clock                                           |
| 6.6  | EEVDF instead of CFS (``pick_eevdf``)                                                   |
| 6.18 | threads are throttled on their way to user mode (``throttle_cfs_rq_work``), not queues  |
"""

from __future__ import annotations

import gzip
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from uncia.errors import UnciaError

_OLDEST: Final = (5, 4)
_RANDOM_TIMER: Final = (6, 4)
_EEVDF: Final = (6, 6)
_TASKS: Final = (6, 18)


@dataclass(frozen=True)
class Kernel:
    """The properties of a kernel that the simulator models."""

    version: str
    scheduler: Literal["cfs", "eevdf"]
    throttling: Literal["group", "task"]
    timer: Literal["absolute", "random"]


def of_version(text: str) -> Kernel:
    """Look up the model of a kernel version, such as ``6.8`` or ``5.10.201-amd64``.

    Raises:
        UnciaError: it is no version, or older than what is modelled.
    """
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        raise UnciaError(f"{text!r} is no kernel version", hint="Write it as in 6.8.")
    version = (int(match[1]), int(match[2]))
    if version < _OLDEST:
        raise UnciaError(
            f"Linux {version[0]}.{version[1]} is not modelled: before 5.4 local runtime expired"
            " with its period",
            hint="Give 5.4 or a later version.",
        )
    return Kernel(
        version=text,
        scheduler="eevdf" if version >= _EEVDF else "cfs",
        throttling="task" if version >= _TASKS else "group",
        timer="random" if version >= _RANDOM_TIMER else "absolute",
    )


def here() -> Kernel:
    """Look up the model of this machine's kernel.

    Raises:
        UnciaError: this is not Linux, or the kernel is older than what is modelled.
    """
    if platform.system() != "Linux":
        raise UnciaError(
            f"this machine runs {platform.system()}, not Linux",
            hint="Name a kernel: --kernel 6.8.",
        )
    return of_version(platform.release())


def tick_rate() -> int | None:
    """Read ``CONFIG_HZ`` of this machine's kernel; None if its configuration is not published."""
    release = platform.release()
    for path in (
        Path("/proc/config.gz"),
        Path(f"/boot/config-{release}"),
        Path(f"/lib/modules/{release}/config"),
    ):
        try:
            raw = path.read_bytes()
        except OSError:
            continue
        text = gzip.decompress(raw) if path.suffix == ".gz" else raw
        match = re.search(rb"^CONFIG_HZ=(\d+)$", text, re.MULTILINE)
        if match is not None:
            return int(match[1])
    return None
