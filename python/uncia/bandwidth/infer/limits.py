"""The limits of judgement that several steps of inference share.

Each is one number for one idea, so that it is chosen, and can be changed, in one place; how often
the result is right follows from them, and is measured (``benches/bandwidth/infer.py``).
"""

from typing import Final

from uncia.bandwidth.infer.trace import MS

NOISE_SHARE: Final = 0.01
"""Share of throttles, of a period or of a chance, below which something counts as noise."""

MIN_EVENTS: Final = 3
"""Events of a kind that are the least to be none by accident."""

MIN_THROTTLES: Final = 8
"""Throttles that a distribution is known from, and pieces that a long run is cut into."""

AGREEMENT: Final = 0.9
"""Share of runs, or of ends, that must agree for all to count as agreeing."""

MAX_PARTS: Final = 6
"""A true period is at most so many times shorter than the one that is seen."""

WAKE_DELAY_NS: Final = 0.15 * MS
"""To wake, to switch, and for a virtual machine to be resumed: from a refill to what is seen."""

WHOLE_TICKS: Final = 0.02
"""Of a tick: what is this near a whole number of ticks counts as one."""

MAX_MISFIT: Final = 0.2
"""Of a tick, of throttles or of runs: what may be off before a grid or a model does not fit."""

CHANCE: Final = 0.25
"""Of a tick or a period: nearer than this to a grid, chance is no explanation."""

MAX_SAMPLE: Final = 6000
"""Values that are looked at, of however many."""

POINTS: Final = 200
"""Periods that are simulated, and quantiles by which two distributions are compared."""

MAX_CONFIDENCE: Final = 0.99
"""The highest confidence."""
