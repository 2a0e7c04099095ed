"""The sizes that providers sell and the CPU periods that enforce them, each with its source.

Periods and tick rates are those of Table 3 of *Demystifying Serverless Costs on Public Platforms*
(EuroSys'26, section 4.3), inferred there from profiles. Sizes are the providers' own:

* AWS Lambda: 128 MB and more in steps of 1 MB; at 1,769 MB a function has one vCPU. *Configure
  Lambda function memory*, docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html
  (2025-04-24).
* Google Cloud Run functions: 0.08 vCPU and more, in steps of 0.01 below one vCPU. *Configure CPU
  limits for services*, cloud.google.com/run/docs/configuring/services/cpu (2025-04-19).
* IBM Cloud Code Engine: multiples of 0.125 vCPU. *Supported memory and CPU combinations*,
  cloud.ibm.com/docs/codeengine?topic=codeengine-mem-cpu-combo.

Prices and billing rules are in the tariff files. The embedded platform sells Lambda's sizes under
Lambda's period by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from uncia.units import MIB, NS_PER_MS


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

LAMBDA: Final = Platform(20 * NS_PER_MS, 250, LAMBDA_MB, LAMBDA_MIN_MB, 1)
GCP: Final = Platform(100 * NS_PER_MS, 1000, None, 80_000, 10_000)
IBM: Final = Platform(10 * NS_PER_MS, 250, None, 125_000, 125_000)

PLATFORMS: Final = {"aws": LAMBDA, "gcp": GCP, "ibm": IBM}
