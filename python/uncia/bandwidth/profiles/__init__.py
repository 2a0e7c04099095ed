"""Profiles of CPU bandwidth control: how they are measured, read, and separated from noise.

A profile records when a busy loop saw the clock jump, and by how much (`model`). It is read from
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
