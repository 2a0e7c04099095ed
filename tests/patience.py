"""How long tests wait: longer where everything takes longer, such as on an emulated processor."""

import os

FACTOR = float(os.environ.get("UNCIA_TEST_TIME_FACTOR", "1"))
"""Times as long; the tests of the sandbox read it too, in their fixture."""


def scaled(seconds: float) -> float:
    """A bound of time in seconds, where everything takes as long as here."""
    return seconds * FACTOR
