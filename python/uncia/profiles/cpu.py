"""How providers sell CPU and enforce it, from their profiles."""

from __future__ import annotations

from typing import Final

from uncia import profiles
from uncia.errors import UnciaError
from uncia.profiles.model import Profile
from uncia.providers import Platform
from uncia.units import MIB


def sold(profile: Profile) -> Platform:
    """Return a profile's CPU period, tick rate and sizes.

    Raises:
        UnciaError: the profile says nothing of them.
    """
    cpu = profile.cpu
    if cpu is None:
        raise UnciaError(
            f"the profile {profile.id} has no cpu: how that provider enforces CPU is not known",
            f"Profiles that have: {', '.join(PLATFORMS)}.",
        )
    if cpu.by_memory is not None:
        sizes = cpu.by_memory
        in_mb = [size.value // MIB for size in (sizes.per_vcpu, sizes.minimum, sizes.step)]
        return Platform(cpu.period.value, cpu.tick_rate.value, *in_mb)
    assert cpu.by_vcpu is not None, "the form has one of both"
    by_vcpu = cpu.by_vcpu
    return Platform(
        cpu.period.value, cpu.tick_rate.value, None, by_vcpu.minimum.value, by_vcpu.step.value
    )


PLATFORMS: Final = {
    name: sold(profiles.get(name)) for name in profiles.names() if profiles.get(name).cpu
}
"""Those of the profiles that ship with Uncia, by name."""

LAMBDA: Final = PLATFORMS["aws"]
GCP: Final = PLATFORMS["gcp"]
IBM: Final = PLATFORMS["ibm"]
