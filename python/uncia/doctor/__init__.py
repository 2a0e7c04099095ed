"""What this machine can do, how noisy it is, and what follows for results.

:func:`examine` examines it once, :mod:`uncia.doctor.monitors` watch it beside a run. Nothing here
needs root, changes a setting or leaves anything behind.
"""

from __future__ import annotations

from uncia.doctor.checks import capability_checks
from uncia.doctor.host import Host
from uncia.doctor.noise import Noise, measure, noise_checks
from uncia.doctor.probe import engine_probe
from uncia.doctor.report import Check, Report, Status

__all__ = ["Check", "Noise", "Report", "Status", "examine"]


def examine(
    duration_s: float = 1.0, *, host: Host | None = None, is_bpf_tried: bool = True
) -> Report:
    """Examine this machine.

    Args:
        duration_s: how long to measure its noise, in seconds; zero measures none.
        host: where to read about the machine; by default this one.
        is_bpf_tried: whether the kernel's scheduler is watched for a moment, to see if that works.

    Raises:
        ValueError: the duration is negative.
    """
    if duration_s < 0:
        raise ValueError(f"a duration of {duration_s} s is impossible")
    host = host or Host()
    noise = measure(host, duration_s) if duration_s > 0 else None
    probe = engine_probe()
    checks = capability_checks(host, probe, is_bpf_tried=is_bpf_tried)
    if noise is not None:
        checks += noise_checks(noise)
    facts = host.facts()
    facts["platform_features"] = None if probe.answer is None else probe.answer.get("features")
    facts["noise"] = None if noise is None else noise.as_dict()
    return Report(tuple(checks), facts)
