"""The options that a backend is opened with: memory limit, spill folder, cluster."""

from dataclasses import dataclass
from pathlib import Path

from uncia.errors import UnciaError
from uncia.units import UnitError, format_size, parse_size


@dataclass(frozen=True)
class Options:
    """Options of a backend, which refuses those that it cannot use.

    Attributes:
        memory_limit: such as ``4GB``; beyond it the engine spills to disk.
        temporary: the folder to spill to; None: the system's.
        master: the address of a cluster.
        threads: how many compute, in this process; None: as many as there are CPUs.
    """

    memory_limit: str | None = None
    temporary: Path | None = None
    master: str | None = None
    threads: int | None = None

    def memory_bytes(self, minimum: int, engine: str) -> int | None:
        """The memory limit in bytes (GB = 2^30), None if there is none.

        Args:
            minimum: bytes that the engine needs.
            engine: its name, for the message.

        Raises:
            UnciaError: it is no size, or below the minimum.
        """
        if self.memory_limit is None:
            return None
        try:
            size = parse_size(self.memory_limit)
        except UnitError as error:
            raise UnciaError(
                f"the memory limit: {error}", "Write, for instance, --memory-limit 4GB."
            ) from error
        if size < minimum:
            raise UnciaError(
                f"a memory limit of {self.memory_limit} is too little: {engine} needs at least"
                f" {format_size(minimum)}"
            )
        return size

    def folder(self) -> Path | None:
        """The folder to spill to; None: the system's.

        Raises:
            UnciaError: it is no folder.
        """
        if self.temporary is None:
            return None
        folder = Path(self.temporary).absolute()
        if not folder.is_dir():
            raise UnciaError(f"{folder} is no folder, so temporary files cannot be written there")
        return folder
