"""The result of an examination: checks, each with its consequence and its remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["ok", "warn", "missing"]


@dataclass(frozen=True)
class Check:
    """One check of a machine.

    Attributes:
        id: a short name that does not change.
        status: ``ok``; ``warn`` (there, but results suffer); ``missing``: unavailable here.
        finding: what was found, a sentence.
        consequence: what follows for results, a sentence; empty if nothing does.
        remedy: what to do about it, a sentence; empty when nothing can be done, or need be.
    """

    id: str
    status: Status
    finding: str
    consequence: str = ""
    remedy: str = ""

    def sentence(self) -> str:
        """Return finding and consequence in one line."""
        return " ".join(part for part in (self.finding, self.consequence) if part)


@dataclass(frozen=True)
class Report:
    """The result of an examination.

    Attributes:
        checks: in the order in which a person should read them.
        facts: the machine's properties, plain data; None for what is not known.
    """

    checks: tuple[Check, ...]
    facts: Mapping[str, Any]

    def warnings(self, *, profiling: bool = False) -> list[str]:
        """Return what impairs results, a sentence each, for a run's report.

        Args:
            profiling: the run reads performance events, so that their absence matters too.
        """
        # A run that needs a runtime, a service or an Engine which is missing ends with that, a
        # monitor that does not work says so itself, and tracing branches is a command of its own.
        # Of features that are off the platform warns where a function asks for one.
        programs = ("runtime-", "service-", "docker", "branches", "bpf")
        return [
            check.sentence()
            for check in self.checks
            if check.status != "ok"
            and check.id != "features"
            and (profiling or not check.id.startswith("perf-"))
            and not (check.status == "missing" and check.id.startswith(programs))
        ]

    def machine(self) -> dict[str, Any]:
        """Return the machine's properties for ``run.yaml``: plain data, None for what is not known.

        ``noise`` is a mapping of its own, or None if it was not measured.
        """
        return dict(self.facts)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, for JSON."""
        return {"checks": [asdict(check) for check in self.checks], "machine": self.machine()}
