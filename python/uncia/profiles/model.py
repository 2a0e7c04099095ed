"""The form of a profile: how a provider serves functions, each figure with its source."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, create_model, model_validator

from uncia.forms import Form, Name, Url
from uncia.settings import PLATFORM_SETTINGS, POLICIES, Setting, form
from uncia.units import MIB, NS_PER_S, Cpu, Duration, Size
from uncia.yamlio import KeyPath

T = TypeVar("T")

_LONGEST_TICK_HZ: Final = 1_000


def _check_date(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a date: write one such as 2025-05-15") from None
    return text


Text = Annotated[str, StringConstraints(min_length=1)]
Date = Annotated[str, AfterValidator(_check_date)]


class Source(Form):
    """Where a figure is from."""

    citation: Text = Field(description="A paper, with the section, or the title of a page")
    url: Url | None = Field(None, description="Its address")
    accessed: Date | None = Field(None, description="When it said so")


class Fact(Form, Generic[T]):
    """A value, and where it is from."""

    value: T
    source: Text = Field(description="A key of sources")
    note: Text | None = Field(None, description="What the value leaves out or assumes")


class Unsupported(Form):
    """What the provider does and the embedded platform does not."""

    what: Text = Field(description="A sentence, which is printed as a warning")
    source: Text = Field(description="A key of sources")


class ByMemory(Form):
    """CPU that comes with memory."""

    per_vcpu: Fact[Size] = Field(description="The memory with which a whole vCPU comes")
    minimum: Fact[Size] = Field(description="The smallest size")
    step: Fact[Size] = Field(description="Between sizes")


class ByVcpu(Form):
    """CPU that is set by itself."""

    minimum: Fact[Cpu] = Field(description="The smallest size")
    step: Fact[Cpu] = Field(description="Between sizes")


class CpuSold(Form):
    """How a provider sells CPU and enforces it."""

    period: Fact[Duration] = Field(description="Of its bandwidth control")
    tick_rate: Fact[Annotated[int, Field(ge=1, le=_LONGEST_TICK_HZ)]] = Field(
        description="Ticks a second of its kernels"
    )
    by_memory: ByMemory | None = Field(None, description="CPU comes with memory")
    by_vcpu: ByVcpu | None = Field(None, description="CPU is set by itself")

    @model_validator(mode="after")
    def _one_rule(self) -> Self:
        if (self.by_memory is None) == (self.by_vcpu is None):
            raise ValueError("give either by_memory or by_vcpu")
        for name, size in [] if self.by_memory is None else self.by_memory:
            if size.value % MIB or not size.value:
                raise ValueError(f"by_memory.{name} must be one or more whole MB")
        if NS_PER_S % self.tick_rate.value:
            raise ValueError("tick_rate must divide a second into whole nanoseconds")
        return self


def _fact(setting: Setting) -> str:
    return setting.default_text()


def _policy(policies: tuple[str, ...]) -> Any:
    return Fact[Literal[policies]]  # type: ignore[valid-type]


if TYPE_CHECKING:
    ProfileSettings = Form
    ProfilePolicies = Form
else:
    ProfileSettings = form.make(
        "ProfileSettings", Form, PLATFORM_SETTINGS.values(), _fact, wrap=Fact.__class_getitem__
    )
    # The setting `binding` is that choice.
    ProfilePolicies = create_model(
        "ProfilePolicies",
        __base__=Form,
        __module__=__name__,
        **{
            choice.name: (
                _policy(choice.policies) | None,
                Field(None, description=choice.description),
            )
            for choice in POLICIES.values()
            if choice.name not in PLATFORM_SETTINGS
        },
    )


class Tariffs(Form):
    """The tariff by the machine's architecture."""

    x86_64: Text = Field(description="The id of a tariff, or its file")
    aarch64: Text = Field(description="Likewise")


class Profile(Form):
    """How a provider serves functions, as far as the embedded platform can do the same."""

    id: Name = Field(description="The name of the file, without .yaml")
    provider: Text
    product: Text
    as_of: Date = Field(description="When it was so")
    sources: dict[str, Source] = Field(description="What the figures cite, by a name")
    cpu: CpuSold | None = Field(None, description="How CPU is sold and enforced, if that is known")
    settings: ProfileSettings = Field(
        default_factory=ProfileSettings, description="Settings of the platform"
    )
    policies: ProfilePolicies = Field(
        default_factory=ProfilePolicies, description="Which policy makes which choice"
    )
    tariff: Tariffs | None = Field(None, description="What the costs shown go by")
    unsupported: list[Unsupported] = Field(
        default_factory=list, description="What the provider does and the platform does not"
    )

    @model_validator(mode="after")
    def _cpu_once(self) -> Self:
        given = self.setting_values(with_cpu=False)
        if self.cpu is not None and "period" in given:
            raise ValueError("settings.period is that of cpu; give only one of them")
        by_memory = None if self.cpu is None else self.cpu.by_memory
        if by_memory is not None and "memory_per_vcpu" in given:
            raise ValueError(
                "settings.memory_per_vcpu is cpu.by_memory.per_vcpu; give only one of them"
            )
        return self

    def setting_values(self, *, with_cpu: bool = True) -> dict[str, Any]:
        """Return the platform's settings in base units: nanoseconds, micro-vCPU."""
        facts = form.given(self.settings, PLATFORM_SETTINGS)
        values = {name: fact.value for name, fact in facts.items()}
        if with_cpu and self.cpu is not None:
            values["period"] = self.cpu.period.value
            if self.cpu.by_memory is not None:
                values["memory_per_vcpu"] = self.cpu.by_memory.per_vcpu.value
        return values

    def policy_names(self) -> dict[str, str]:
        """Return the policy for each choice that the profile names one for."""
        facts = form.given(self.policies, type(self.policies).model_fields)
        return {name: fact.value for name, fact in facts.items()}

    def warnings(self) -> list[str]:
        """Say what the provider does and the embedded platform does not."""
        return [f"not as on {self.id}: {missing.what}" for missing in self.unsupported]


def citations(data: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield where a profile's data cite sources, and what they cite."""
    items: Any = ()
    if isinstance(data, dict):
        items = data.items()
    elif isinstance(data, list):
        items = enumerate(data)
    for key, value in items:
        if key == "source":
            yield (*path, key), value
        elif path or key != "sources":
            yield from citations(value, (*path, key))
