"""Monitors beside a run, as files name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from uncia.doctor import monitors
from uncia.doctor.monitors import Asked
from uncia.forms import Form, Name
from uncia.units import NS_PER_S, Duration
from uncia.workload.shares import Percent


class MonitorForm(Form):
    """A monitor beside the run: what it reads are rows of the table machine."""

    monitor: monitors.Kind = Field(description="Which")
    name: Name | None = Field(None, description="What rows call it, instead of its kind")
    interval: Duration = Field(
        monitors.INTERVAL_NS, ge=NS_PER_S // 1_000, description="Between two samples"
    )
    groups: list[str] = Field(
        default_factory=lambda: list(monitors.INSTANCES),
        description="Control groups by their paths, with * and **; those of the embedded"
        " platform's instances by default",
    )
    budget: Percent | None = Field(
        None, description="The share of a CPU that it may use; beyond, its interval becomes longer"
    )
    command: list[str] | None = Field(
        None, min_length=1, description="Of command: a program that prints, and its arguments"
    )
    format: monitors.Format = Field("json", description="Of command: what it prints")
    start: list[str] | None = Field(
        None,
        min_length=1,
        description="Of command: a program that is started at the beginning, and ended",
    )
    after: list[str] | None = Field(
        None, min_length=1, description="Of command: a program that is run after the end"
    )

    @field_validator("groups")
    @classmethod
    def _are_paths(cls, groups: list[str]) -> list[str]:
        for pattern in groups:
            if not pattern.startswith("/") or ".." in pattern.split("/"):
                raise ValueError(
                    f"{pattern!r} names no control group: a path in the tree, such as /docker/*"
                )
        return groups

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.monitor in ("machine", "command") and self.groups != list(monitors.INSTANCES):
            raise ValueError(
                f"the monitor {self.monitor} is of the whole machine, and takes no groups"
            )
        if self.budget == 0:
            raise ValueError("a budget of 0% lets a monitor do nothing: leave the monitor out")
        programs = [name for name in ("command", "start", "after") if getattr(self, name)]
        if self.monitor == "command" and not programs:
            raise ValueError("the monitor command runs nothing: give it command, start or after")
        if self.monitor != "command" and (programs or self.format != "json"):
            given = (programs or ["format"])[0]
            raise ValueError(f"{given} is of the monitor command, not of {self.monitor}")
        return self

    @property
    def asked(self) -> Asked:
        """What the engine is asked for."""
        return Asked(
            self.monitor,
            self.interval,
            () if self.monitor == "command" else self.groups,
            name=self.name,
            budget=None if self.budget is None else float(self.budget),
            command=self.command,
            format=self.format,
            start=self.start,
            after=self.after,
        )


def _are_different(forms: list[MonitorForm]) -> list[MonitorForm]:
    names = [form.name or form.monitor for form in forms]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is named twice: give one all its groups, or another name")
    return forms


MonitorForms = Annotated[list[MonitorForm], AfterValidator(_are_different)]
"""Monitors, each with a name of its own."""


def asked_of(forms: Sequence[MonitorForm]) -> list[Asked]:
    """What the engine is asked for."""
    return [form.asked for form in forms]
