"""What a backend is opened with."""

from dataclasses import dataclass
from pathlib import Path

from uncia.errors import UnciaError
from uncia.units import UnitError, format_size, parse_size


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

    def memory_bytes(self, least: int, engine: str) -> int | None:
        """The memory limit in bytes (GB = 2^30), None if there is none.

        Args:
            least: the least with which the engine works, bytes.
            engine: its name, for the message.

        Raises:
            UnciaError: it is no size, or below the least.
        """
        if self.memory_limit is None:
            return None
        try:
            size = parse_size(self.memory_limit)
        except UnitError as error:
            raise UnciaError(
                f"the memory limit: {error}", "Write, for instance, --memory-limit 4GB."
            ) from error
        if size < least:
            raise UnciaError(
                f"a memory limit of {self.memory_limit} is too little: {engine} needs at least"
                f" {format_size(least)}"
            )
        return size

    def folder(self) -> Path | None:
        """The folder for what does not fit in memory; None: the system's.

        Raises:
            UnciaError: it is no folder.
        """
        if self.temporary is None:
            return None
        folder = Path(self.temporary).absolute()
        if not folder.is_dir():
            raise UnciaError(f"{folder} is no folder, so nothing can be kept there")
        return folder
