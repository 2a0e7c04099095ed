"""Profiles of CPU bandwidth control: made, read, and told from noise.

A profile is when a busy loop saw the clock jump, and by how much (`model`). It is read from the
published files or from a run (`sources`), and made by ``uncia cpu profile`` (`measure`).
"""

from uncia.bandwidth.profiles.model import PROBE, THROTTLE, ProbeRun, Profile
from uncia.bandwidth.profiles.raw import NS, Unit
from uncia.bandwidth.profiles.sources import read, read_all, summary

__all__ = [
    "NS",
    "PROBE",
    "THROTTLE",
    "ProbeRun",
    "Profile",
    "Unit",
    "read",
    "read_all",
    "summary",
]
