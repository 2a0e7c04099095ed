"""Monitors beside a run, as files name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    field_validator,
    model_validator,
)

from uncia import yamlio
from uncia.doctor import monitors
from uncia.doctor.monitor import NOISE
from uncia.doctor.monitors import Asked, Host
from uncia.doctor.ssh import Address
from uncia.errors import Mistakes
from uncia.forms import Form, Name
from uncia.units import Duration, Size
from uncia.workload.shares import Percent

LOCAL: Final = "local"
"""Among hosts: this machine."""

_MOST_PROGRAM_BYTES: Final = 60 * 1024
"""Of a program of bpftrace: what the engine takes."""


def _check_host(text: str) -> str:
    if text != LOCAL:
        Address.parse(text)
    return text


class HostForm(Form):
    """Another machine on which monitors watch."""

    url: Annotated[str, AfterValidator(_check_host)] = Field(
        description="ssh://user@host:port; user and port as ssh's configuration says, if missing"
    )
    engine: str | None = Field(
        None, min_length=1, description="The path of the engine there, instead of a copy of this"
    )


def _full(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


HostForms = Annotated[
    list[Annotated[HostForm, BeforeValidator(_full, json_schema_input_type=str | HostForm)]],
    Field(min_length=1),
]


def hosts_of(forms: Sequence[HostForm]) -> tuple[Host, ...]:
    """The hosts that forms name."""
    return tuple(Host(None if it.url == LOCAL else it.url, it.engine) for it in forms)


def check_group(pattern: str) -> None:
    """Check that a pattern is one of paths in a tree of control groups.

    Raises:
        ValueError: it is none.
    """
    if not pattern.startswith("/") or ".." in pattern.split("/"):
        raise ValueError(
            f"{pattern!r} names no control group: a path in the tree, such as /docker/*"
        )


class LimitsForm(Form):
    """Limits of the control groups that ``resctrl`` watches."""

    llc: Size | None = Field(
        None, gt=0, description="Of each last-level cache: as many ways as fit into this size"
    )
    ways: int | None = Field(None, ge=1, le=64, description="Of each last-level cache, instead")
    mask: str | None = Field(
        None,
        pattern=r"^(0x)?[0-9a-fA-F]{1,16}$",
        description="Which ways of each last-level cache, as a hexadecimal mask, instead",
    )
    bandwidth: Percent | None = Field(None, description="Of the memory's bandwidth")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        of_cache = [it for it in (self.llc, self.ways, self.mask) if it is not None]
        if len(of_cache) > 1:
            raise ValueError("the cache is limited twice: give one of llc, ways and mask")
        if not of_cache and self.bandwidth is None:
            raise ValueError("limits are empty: give llc, ways, mask or bandwidth")
        return self

    @property
    def config(self) -> dict[str, Any]:
        """As the engine takes it."""
        limits = {
            "llc_bytes": self.llc,
            "ways": self.ways,
            "mask": self.mask,
            "bandwidth_percent": None if self.bandwidth is None else float(self.bandwidth * 100),
        }
        return {key: value for key, value in limits.items() if value is not None}


class MonitorForm(Form):
    """A monitor beside the run: what it reads are rows of the table machine."""

    monitor: monitors.Kind = Field(description="Which")
    name: Name | None = Field(None, description="What rows call it, instead of its kind")
    interval: Duration = Field(
        monitors.INTERVAL_NS, ge=monitors.SHORTEST_INTERVAL_NS, description="Between two samples"
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
    file: str | None = Field(
        None, min_length=1, description="Of bpftrace: its program, from this file's folder"
    )
    limits: LimitsForm | None = Field(
        None, description="Of resctrl: limits of its control groups during the run"
    )
    root: str | None = Field(
        None,
        min_length=1,
        description="Of resctrl: where its file system is, if not where it is mounted",
    )
    hosts: HostForms | None = Field(
        None,
        description="The machines on which it watches, by ssh, instead of this one, which is"
        f" {LOCAL}",
    )

    _program: str | None = PrivateAttr(None)
    """The text of the program, once it is read."""

    @field_validator("groups")
    @classmethod
    def _are_paths(cls, groups: list[str]) -> list[str]:
        for pattern in groups:
            check_group(pattern)
        return groups

    @model_validator(mode="after")
    def _fits(self) -> Self:
        takes_groups = self.monitor not in ("machine", *monitors.PROGRAMS)
        if not takes_groups and self.groups != list(monitors.INSTANCES):
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
        if self.monitor != "resctrl" and (self.limits or self.root):
            given = "root" if self.limits is None else "limits"
            raise ValueError(f"{given} is of the monitor resctrl, not of {self.monitor}")
        if (self.monitor == "bpftrace") != (self.file is not None):
            raise ValueError(
                "the monitor bpftrace runs a file of its language: give it file"
                if self.file is None
                else f"file is of the monitor bpftrace, not of {self.monitor}"
            )
        return self

    @property
    def asked(self) -> Asked:
        """What the engine is asked for."""
        return Asked(
            self.monitor,
            self.interval,
            () if self.monitor in monitors.PROGRAMS else self.groups,
            name=self.name,
            budget=None if self.budget is None else float(self.budget),
            command=self.command,
            format=self.format,
            start=self.start,
            after=self.after,
            root=self.root,
            limits=None if self.limits is None else self.limits.config,
            program=self._program,
            file=None if self.file is None else Path(self.file).name,
            hosts=hosts_of(self.hosts or ()),
        )


def _are_different(forms: list[MonitorForm]) -> list[MonitorForm]:
    watching = [
        (form.name or form.monitor, host)
        for form in forms
        for host in form.asked.hosts or (Host(),)
    ]
    names = [
        (name, None if host.url is None else Address.parse(host.url).name)
        for name, host in watching
    ]
    for name, host_name in names:
        if name == NOISE:
            raise ValueError(f"{NOISE} is what watches beside every run: give it another name")
        if names.count((name, host_name)) > 1:
            raise ValueError(f"{name} is named twice: give one all its groups, or another name")
    engines: dict[str, Host] = {}
    for _, host in watching:
        if host.url is None:
            continue
        other = engines.setdefault(Address.parse(host.url).name, host)
        if other != host:
            raise ValueError(
                f"{host.url} is there twice, with another user or engine: a host's monitors are of"
                " one engine"
            )
    return forms


MonitorForms = Annotated[list[MonitorForm], AfterValidator(_are_different)]
"""Monitors, each with a name of its own."""


def asked_of(forms: Sequence[MonitorForm]) -> list[Asked]:
    """What the engine is asked for."""
    return [form.asked for form in forms]


def read_programs(
    forms: Sequence[MonitorForm],
    document: yamlio.Document,
    base: Path,
    at: yamlio.KeyPath = ("monitors",),
) -> None:
    """Read the programs of bpftrace that forms name, so that what runs is what was checked.

    Args:
        forms: the monitors, which get the texts.
        document: the file that they stand in.
        base: its folder, from which paths go out.
        at: where they stand.

    Raises:
        UnciaError: one cannot be read, is empty or too long; with file, line and key.
    """
    mistakes = Mistakes()
    for index, form in enumerate(forms):
        if form.file is None:
            continue
        path, key = base / form.file, (*at, index, "file")
        with mistakes.collect():
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
                raise document.error(key, f"{path} cannot be read: {reason}") from error
            length = len(text.encode())
            if not text.strip() or length > _MOST_PROGRAM_BYTES:
                what = "is empty" if length <= _MOST_PROGRAM_BYTES else f"has {length:,} bytes"
                raise document.error(
                    key, f"{path} {what}: a program has 1 to {_MOST_PROGRAM_BYTES:,} bytes"
                )
            form._program = text
    mistakes.raise_all()
