"""AWS Lambda's sizes, which its API knows, and the form of what providers sell as CPU.

*Configure Lambda function memory*, docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
(2025-04-24): 128 MB and more in steps of 1 MB; at 1,769 MB a function has one vCPU. The embedded
platform sells the same under Lambda's period by default. Other providers' facts are in their
profiles, prices and billing rules in the tariff files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from uncia.units import MIB, MICRO_PER_VCPU


@dataclass(frozen=True)
class Platform:
    """How a provider sells CPU and enforces it.

    Attributes:
        period_ns: of its bandwidth control.
        hz: ticks a second of its kernels.
        mb_per_vcpu: the memory with which a whole vCPU comes; None where the vCPU is set itself.
        min_size: the smallest size, in MB or micro-vCPU.
        step: between sizes, in MB or micro-vCPU.
    """

    period_ns: int
    hz: int
    mb_per_vcpu: int | None
    min_size: int
    step: int


LAMBDA_MB: Final = 1769
"""The memory size with which AWS Lambda gives one vCPU, in MB of 2^20 bytes."""

LAMBDA_BYTES: Final = LAMBDA_MB * MIB
"""The same in bytes."""

LAMBDA_MIN_MB: Final = 128
"""AWS Lambda's smallest memory size, in MB of 2^20 bytes."""

LAMBDA_MAX_MB: Final = 10_240
"""AWS Lambda's largest memory size, in MB of 2^20 bytes."""


def lambda_cpu(memory: int, per_vcpu: int = LAMBDA_BYTES) -> int:
    """CPU in micro-vCPU that goes with memory, rounded as the embedded platform does.

    Args:
        memory: in bytes; of whole MB.
        per_vcpu: the memory with which one vCPU comes, in bytes: Lambda's unless it is given.
    """
    return max(1, (memory // MIB * MIB * MICRO_PER_VCPU + per_vcpu // 2) // per_vcpu)
