"""The fit ``paper``: how the cost paper's artifact mapped the Huawei trace to other platforms.

*Demystifying Serverless Costs on Public Platforms* (EuroSys'26), section 2.2 and Figure 2. Where
the paper's text or Table 1 differ, this follows the artifact, which computed the printed results:

* every platform bills the execution alone, without initialization; nothing is billed for a time of
  zero, except by Azure, which bills 100 ms;
* Huawei and Google are billed as allocated, whatever sizes they sell;
* AWS gets the larger of the allocated vCPU and the vCPU that the memory implies, and its memory
  likewise; its ratio is not 1769 MB per vCPU but the unweighted mean over the distinct allocations;
* Azure's Consumption plan is billed for the memory used, in steps of 128 MB, without minimum and
  maximum; its vCPU is the one allocated, not the plan's.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from uncia.tariffs.model import Tariff
from uncia.tariffs.sizes import MeanRatio, Observed

MAX_MEMORY: Final = 10_240 << 20
"""The largest allocation that the publication kept, bytes."""

_AS_ALLOCATED: Final = frozenset(
    {"huawei-functiongraph", "gcp-run-request", "azure-consumption", "cloudflare-workers"}
)
BY_RATIO: Final = frozenset({"aws-lambda-x86", "aws-lambda-arm"})
"""The tariffs whose sizes follow from the mean ratio of the distinct allocations."""


def published(tariff: Tariff, ratio: Fraction | None) -> tuple[Tariff, str]:
    """Change a tariff to what the publication applied; return it and its sizes' rule in words.

    Args:
        tariff: the tariff; one that is not in the publication keeps all but its time.
        ratio: mean of vCPU over memory of the distinct allocations, micro-vCPU per byte; None if
            there is none.
    """
    source = tariff.sizes.source
    changes: dict[str, Any] = {}
    if tariff.time.kind == "turnaround":
        changes["time"] = tariff.time.model_copy(update={"kind": "execution"})
    if tariff.id in BY_RATIO and ratio is not None:
        sizes = changes["sizes"] = MeanRatio(vcpu_per_byte=ratio, source=source)
        rule = sizes.rule
    elif tariff.id in _AS_ALLOCATED | BY_RATIO:
        rule = "as allocated"
        if tariff.time.kind != "cpu":
            changes["sizes"] = Observed(kind="observed", source=source)
        else:
            rule = tariff.sizes.rule
    else:
        rule = f"not in the publication; {tariff.sizes.rule}"
    if tariff.id == "azure-consumption":
        unbounded = {"minimum": None, "maximum": None}
        changes["charges"] = [
            charge.model_copy(update=unbounded) if charge.basis == "used" else charge
            for charge in tariff.charges
        ]
        rule = "vCPU as allocated, memory as used"
    time = "CPU time" if tariff.time.kind == "cpu" else "execution without initialization"
    return tariff.model_copy(update=changes), f"paper: {rule}; {time}"


def mean_ratio(allocations: list[tuple[int, int]]) -> Fraction | None:
    """The unweighted mean of vCPU over memory, micro-vCPU per byte; None without allocations.

    Args:
        allocations: distinct pairs of micro-vCPU and bytes; those of zero are no allocation.
    """
    ratios = [Fraction(cpu, memory) for cpu, memory in allocations if cpu > 0 and memory > 0]
    return sum(ratios, Fraction(0)) / len(ratios) if ratios else None
