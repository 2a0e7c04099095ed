"""What a backend is opened with."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """What a backend is opened with; what it cannot use is an error there.

    Attributes:
        memory_limit: what it may hold in memory, such as ``4GB``.
        temporary: the folder for what does not fit in memory; None: the system's.
        master: the address of a cluster.
    """

    memory_limit: str | None = None
    temporary: Path | None = None
    master: str | None = None
