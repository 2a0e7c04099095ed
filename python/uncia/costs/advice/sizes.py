"""Sizes of tariffs for given allocations, and the provider behind a platform's name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from uncia.costs.advice.rows import UNKNOWN, Configuration
from uncia.providers import LAMBDA_MB
from uncia.tariffs.fit import Size as Allocation
from uncia.tariffs.fit import fit_size
from uncia.tariffs.model import Tariff
from uncia.tariffs.sizes import Combinations, Independent, Observed, Proportional
from uncia.units import GIB, MIB, MICRO_PER_VCPU


class Size(NamedTuple):
    """A size; None where it is not documented or was not observed.

    Attributes:
        memory: bytes.
        cpu: micro-vCPU.
    """

    memory: int | None
    cpu: int | None


_CPU_LADDER: Final = tuple(
    round(vcpu * MICRO_PER_VCPU) for vcpu in (0.08, 0.167, 0.25, 0.333, 0.5, 1, 2, 4)
)
_MEMORY_LADDER: Final = tuple(
    megabytes * MIB for megabytes in (128, 256, 512, 1024, LAMBDA_MB, 2048, 3072, 4096, 8192, 10240)
)

_OWNERS: Final = {
    "aws": "Amazon Web Services",
    "amazon": "Amazon Web Services",
    "gcp": "Google Cloud",
    "google": "Google Cloud",
    "azure": "Microsoft Azure",
    "huawei": "Huawei Cloud",
    "ibm": "IBM Cloud",
    "alibaba": "Alibaba Cloud",
    "oracle": "Oracle Cloud",
    "vercel": "Vercel",
    "cloudflare": "Cloudflare",
}
_SHORT_NAMES: Final = {"Amazon Web Services": "AWS", "Microsoft Azure": "Azure"}
_USUAL: Final = {
    "Amazon Web Services": "aws-lambda-x86",
    "Google Cloud": "gcp-run-request",
    "Microsoft Azure": "azure-consumption",
    "Huawei Cloud": "huawei-functiongraph",
    "IBM Cloud": "ibm-code-engine",
    "Alibaba Cloud": "alibaba-fc",
    "Oracle Cloud": "oracle-functions",
    "Vercel": "vercel-functions",
    "Cloudflare": "cloudflare-workers",
}


def owner(platform: str) -> str | None:
    """The provider of a platform, by its name; None if the name identifies none."""
    words = _words(platform)
    return next((provider for word, provider in _OWNERS.items() if word in words), None)


def seller(tariff: Tariff) -> str:
    """The short name of a tariff's provider: ``AWS``."""
    return _SHORT_NAMES.get(tariff.provider, tariff.provider)


def is_arm(platform: str) -> bool:
    """Whether a platform's name identifies it as ARM."""
    return not _words(platform).isdisjoint({"arm", "arm64", "graviton"})


def _words(platform: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", platform.lower()))


def default_tariff(platform: str) -> str | None:
    """The id of the tariff that a platform bills by, by default; None if unknown."""
    provider = owner(platform)
    if provider == "Amazon Web Services" and is_arm(platform):
        return "aws-lambda-arm"
    return None if provider is None else _USUAL[provider]


def usual_tariffs() -> list[str]:
    """The ids of the tariffs that providers' platforms bill by, by default: one of each."""
    return list(_USUAL.values())


def fitted(tariffs: Sequence[Tariff], allocations: Sequence[Size]) -> dict[tuple[str, Size], Size]:
    """Fit allocations to the sizes of each tariff, as bills do.

    Args:
        tariffs: whose sizes.
        allocations: observed or wanted; None where unknown.

    Returns:
        (tariff's id, allocation) -> size.
    """
    result = {}
    for tariff in tariffs:
        for wanted in dict.fromkeys(allocations):
            size = fit_size(tariff.sizes, Allocation(wanted.cpu, wanted.memory))
            result[tariff.id, wanted] = Size(size.memory, size.cpu if knows_cpu(tariff) else None)
    return result


def allocation(config: Configuration) -> Size:
    """The allocation of a configuration."""
    memory = None if config.memory == UNKNOWN else config.memory
    return Size(memory, None if config.cpu == UNKNOWN else config.cpu)


def same(size: Size, measured: Size) -> bool:
    """Whether a fitted size equals the measured one; an unknown value equals every value.

    Shares that differ by one micro-vCPU, the resolution, are equal.
    """
    memory = size.memory is None or measured.memory is None or size.memory == measured.memory
    cpu = size.cpu is None or measured.cpu is None or abs(size.cpu - measured.cpu) <= 1
    return memory and cpu and (size.memory is not None or size.cpu is not None)


def candidates(memory: int) -> list[Size]:
    """Allocations with at least this memory, to fit to each tariff: steps of vCPU and of memory."""
    by_cpu = [Size(memory, cpu) for cpu in _CPU_LADDER]
    by_memory = [Size(step, 0) for step in _MEMORY_LADDER if step >= memory]
    return [*by_cpu, Size(memory, 0), *by_memory]


def is_observed(tariff: Tariff) -> bool:
    """Whether a tariff has no sizes but bills the observed allocation."""
    return isinstance(tariff.sizes, Observed)


def names_smallest(tariff: Tariff) -> bool:
    """Whether a tariff says what its smallest size is; otherwise it sells a single byte, too."""
    match tariff.sizes:
        case Proportional() | Independent():
            knob = tariff.sizes.memory
            listed = knob.values and knob.step is None and knob.maximum is None
            return knob.minimum is not None or bool(listed)
        case _:
            return not is_observed(tariff)


def knows_cpu(tariff: Tariff) -> bool:
    """Whether the vCPU of a tariff's sizes is documented; otherwise a fit keeps the observed."""
    return not isinstance(tariff.sizes, Combinations) or tariff.sizes.names_cpu


def slower(size: Size, share: int | None) -> bool:
    """Whether a size has less vCPU than the share that rows ran at, if both are known."""
    return size.cpu is not None and share is not None and size.cpu + 1 < share


def size_words(size: Size) -> str:
    """Format a size, as in ``1 vCPU, 1,769 MB``."""
    parts = []
    if size.cpu is not None:
        parts.append(f"{size.cpu / MICRO_PER_VCPU:.3g} vCPU")
    if size.memory is not None:
        parts.append(
            f"{size.memory / GIB:g} GB"
            if size.memory % GIB == 0
            else f"{size.memory / MIB:,.4g} MB".replace(".0 ", " ")
        )
    return ", ".join(parts) or "unknown size"
