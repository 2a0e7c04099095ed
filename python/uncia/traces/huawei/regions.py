"""The regions of Huawei's trace of 2025, by the paths of its files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from uncia.text import plural

_REGION: Final = re.compile(r"^(R[1-9])(?=$|[_.-])")


class Regions:
    """The regions of files, by their paths."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._platforms = {path: _platform(path) for path in paths}
        self._numbers = {name: at for at, name in enumerate(sorted(set(self._platforms.values())))}

    def platform(self, path: Path) -> str:
        """What the column ``platform`` says."""
        return self._platforms[path]

    def number(self, path: Path) -> int:
        """The region's number, the same for all files of the region."""
        return self._numbers[self.platform(path)]

    def warnings(self) -> list[str]:
        """That some files have a region and others none."""
        without = [path for path in self._paths if self.platform(path) == "huawei"]
        if not without or len(without) == len(self._paths):
            return []
        return [
            f"{without[0]}"
            + (f" and {plural(len(without) - 1, 'other file')}" if len(without) > 1 else "")
            + " name no region (R1 to R5) in their path, and others do: the same pod, function or"
            " request is not found in both"
        ]


def _platform(path: Path) -> str:
    regions = [match.group(1) for part in path.parts if (match := _REGION.match(part))]
    return f"huawei-{regions[-1]}" if regions else "huawei"
