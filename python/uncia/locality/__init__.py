"""What predictors of branches and last-level caches make of functions, simulated.

A function runs as the bare process of the platform `native`, under QEMU's user mode, whose plugin
writes its conditional branches into predictors, or under valgrind's cachegrind. What they count are
rows of the table ``locality``. Both see user mode alone, as the paper on FaaSProfiler does.
"""

from uncia.locality.branches import STATES, trace
from uncia.locality.caches import Cache, simulate
from uncia.locality.measured import measure
from uncia.locality.summary import branch_lines, cache_lines
from uncia.locality.targets import Target, check, prepare
from uncia.locality.tools import predictions
from uncia.locality.work import Work

__all__ = [
    "STATES",
    "Cache",
    "Target",
    "Work",
    "branch_lines",
    "cache_lines",
    "check",
    "measure",
    "predictions",
    "prepare",
    "simulate",
    "trace",
]
