"""The form of a tariff: what a platform bills for, in what steps, at what price, and who says so.

A tariff is data, one YAML file each. It follows Equation (1) of *Demystifying Serverless Costs on
Public Platforms* (EuroSys'26, section 2.1): a billable time, charges for resources by allocation or
by usage, granularities and minimums, and a fee for each invocation. Prices are decimal text, never
floating point. A GB is 2^30 bytes (1024 MB), as the platforms count it; 1 MB is 2^20 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)

from uncia.errors import UnciaError
from uncia.forms import Form, MistakeAt
from uncia.tariffs.rules import AMOUNT_KEYS, KINDS, TIME_KEYS, Free, Maximum, Minimum, Rules
from uncia.tariffs.sizes import AnySizes, Fixed, Sizes, Text
from uncia.tariffs.texts import Date, Money, TariffId, Url
from uncia.units import (
    GIB,
    MICRO_PER_VCPU,
    NS_PER_H,
    NS_PER_S,
    Duration,
    Size,
    UnitError,
    parse_cpu,
    parse_duration,
    parse_size,
)

HOURS_PER_MONTH: Final = 720
"""A month of 30 days, as the cost paper counts a monthly price (its EBS comparison)."""

Resource = Literal["cpu", "memory", "storage", "instance"]
Basis = Literal["allocated", "used", "reserved", "borrowed", "lent"]
Unit = Literal[
    "vCPU-second",
    "vCPU-hour",
    "GB-second",
    "GB-hour",
    "GB-month",
    "instance-hour",
    "instance-month",
]

_UNITS: Final[dict[str, tuple[str, ...]]] = {
    "cpu": ("vCPU-second", "vCPU-hour"),
    "memory": ("GB-second", "GB-hour"),
    "storage": ("GB-hour", "GB-month"),
    "instance": ("instance-hour", "instance-month"),
}
# How many base units (micro-vCPU x ns, bytes x ns, instances x ns) one unit of the price holds.
_PER_UNIT: Final[dict[str, int]] = {
    "vCPU-second": MICRO_PER_VCPU * NS_PER_S,
    "vCPU-hour": MICRO_PER_VCPU * NS_PER_H,
    "GB-second": GIB * NS_PER_S,
    "GB-hour": GIB * NS_PER_H,
    "GB-month": GIB * NS_PER_H * HOURS_PER_MONTH,
    "instance-hour": NS_PER_H,
    "instance-month": NS_PER_H * HOURS_PER_MONTH,
}


class Source(Form):
    """Where a figure is from: a public page or a paper."""

    citation: Text
    url: Url | None = None
    accessed: Date | None = None


FormT = TypeVar("FormT", bound=Form)


def _with_rules(form: type[FormT], keys: Sequence[str], quantity: Any) -> type[FormT]:
    """A form with a key for each rule after its own; every key is optional."""
    fields: dict[str, Any] = {
        kind.key: (quantity | None, Field(None, description=kind.summary()))
        for kind in KINDS
        if kind.key in keys
    }
    made: type[FormT] = create_model(form.__name__, __base__=form, __module__=__name__, **fields)
    return made


class _TimeHead(Form):
    kind: Literal["execution", "turnaround", "instance", "cpu"]


class _ChargeHead(Form):
    resource: Resource
    basis: Basis
    price: Money | None
    per: Unit


if TYPE_CHECKING:  # bases that are made are no types

    class _RuledTime(_TimeHead): ...

    class _RuledCharge(_ChargeHead): ...

else:
    _RuledTime = _with_rules(_TimeHead, TIME_KEYS, Duration)
    _RuledCharge = _with_rules(_ChargeHead, AMOUNT_KEYS, Text)


class BillableTime(_RuledTime):
    """Which time is billed (T of Equation 1), and by which rules.

    ``execution``: the handler runs. ``turnaround``: the same plus the initialization that this
    request waited for. ``instance``: the instance exists, whatever it does. ``cpu``: CPU time used.
    ``minimum`` is of each time billed, or, over instance time, of ``all`` instances together. What
    is ``free`` is taken off each time after that. See `uncia.tariffs.rules`, whose keys it has.
    """

    minimum_for: Literal["all"] | None = None
    source: Text
    note: Text | None = None

    @classmethod
    def explain_unknown(cls, key: str) -> str | None:
        """Say of a rule of amounts alone where it belongs."""
        if key not in AMOUNT_KEYS:
            return None
        return (
            f"a time has no {key}, which is a rule of amounts: write it under charges (the longest"
            " execution that the platform allows stands under limits)"
        )

    @property
    def rules(self) -> Rules:
        """What each time billed goes through."""
        rules = Rules.of({key: getattr(self, key) for key in TIME_KEYS})
        return rules if self.minimum_for is None else rules.without(Minimum)

    @property
    def minimum_all(self) -> int | None:
        """The least time billed of all instances together."""
        return None if self.minimum_for is None else getattr(self, Minimum.key)

    @field_validator("minimum_for")
    @classmethod
    def _minimum_exists(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return None
        if info.data.get(Minimum.key) is None:
            raise ValueError("there is no minimum that could be for all")
        if info.data.get("kind") != "instance":
            raise ValueError("only over instance time can a minimum be for all together")
        return value

    @field_validator(*TIME_KEYS)
    @classmethod
    def _bound_fits(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None:
            _check_bound(info.field_name, value)
        return value


class Charge(_RuledCharge):
    """A price for a resource, and the amount of it that is billed.

    ``basis``: ``allocated`` and ``reserved`` amounts are multiplied by the billable time, as is the
    average memory ``used`` or ``lent``; CPU ``used``, ``borrowed`` or ``lent`` is CPU time as it
    is. What is ``lent`` is a credit. ``granularity``, ``minimum``, ``free`` and ``maximum`` are of
    the amount: a size for memory, vCPU for CPU allocated or reserved, a duration of CPU time
    otherwise. See `uncia.tariffs.rules`, whose keys it has.
    """

    amount: Text | None = None
    when: Literal["always", "preemptible", "not_preemptible"] = "always"
    source: Text
    note: Text | None = None

    @classmethod
    def explain_unknown(cls, key: str) -> str | None:
        """Say of a rule of times alone where it belongs."""
        return f"{key} is a rule of times; write it under time" if key in TIME_KEYS else None

    @field_validator("basis")
    @classmethod
    def _basis_exists(cls, value: Basis, info: ValidationInfo) -> Basis:
        resource = info.data.get("resource")
        if resource in ("storage", "instance") and value != "allocated":
            raise ValueError(f"{resource} is billed as allocated, not as {value}")
        if resource == "memory" and value in ("reserved", "borrowed"):
            raise ValueError(f"memory is billed as allocated, used or lent, not as {value}")
        return value

    @field_validator("per")
    @classmethod
    def _unit_fits(cls, value: Unit, info: ValidationInfo) -> Unit:
        allowed = _UNITS.get(info.data.get("resource", ""), ())
        if allowed and value not in allowed:
            raise ValueError(f"{info.data['resource']} is priced per {' or '.join(allowed)}")
        return value

    @field_validator(*AMOUNT_KEYS, "amount")
    @classmethod
    def _quantity_fits(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None or "resource" not in info.data or "basis" not in info.data:
            return value
        resource, basis = info.data["resource"], info.data["basis"]
        if info.field_name == "amount" and resource != "storage":
            raise ValueError("only storage has a fixed amount")
        if resource == "instance":
            raise ValueError("an instance is billed whole")
        amount = _parse_amount(value, resource, basis)
        _check_bound(info.field_name, amount)
        return value

    @field_validator(Maximum.key)
    @classmethod
    def _maximum_is_not_below_the_least(cls, value: str | None, info: ValidationInfo) -> str | None:
        known = {key: info.data.get(key) for key in AMOUNT_KEYS}
        if value is None or known[Minimum.key] is None or "basis" not in info.data:
            return value

        def amount(text: str) -> int:
            return _parse_amount(text, info.data["resource"], info.data["basis"])

        before = Rules.of({key: amount(text) for key, text in known.items() if text is not None})
        if before(0) > amount(value):
            raise ValueError(
                f"the maximum {value} is below what is billed at least ({known[Minimum.key]}), so"
                " that every amount would be billed alike"
            )
        return value

    @property
    def is_credit(self) -> bool:
        """Whether the charge is taken off the bill (what was lent to others)."""
        return self.basis == "lent"

    @property
    def is_rate(self) -> bool:
        """Whether the amount is a level that holds over the billable time, not CPU time itself."""
        return self.resource != "cpu" or self.basis in ("allocated", "reserved")

    @property
    def unit_price(self) -> Fraction | None:
        """Dollars per base unit (micro-vCPU x ns, bytes x ns, instances x ns), exactly."""
        return None if self.price is None else Fraction(self.price) / _PER_UNIT[self.per]

    @property
    def rules(self) -> Rules:
        """What each amount billed goes through: bytes, micro-vCPU, or ns of CPU time."""
        return Rules.of({key: self.limit(key) for key in AMOUNT_KEYS})

    def limit(self, name: str) -> int | None:
        """A figure of the amount in its base unit: bytes, micro-vCPU, or ns of CPU time."""
        text: str | None = getattr(self, name)
        return None if text is None else _parse_amount(text, self.resource, self.basis)


for _form, _head, _keys in (
    (BillableTime, _TimeHead, TIME_KEYS),
    (Charge, _ChargeHead, AMOUNT_KEYS),
):
    for _key in {*_head.model_fields, *_form.__annotations__}.intersection(_keys):
        raise UnciaError(
            f"the key {_key} of a rule is a part of every {_form.__name__} already",
            "give the rule another key (its file is in uncia/tariffs/rules)",
        )


def _check_of_instances(charge: Charge, index: int) -> None:
    """Refuse what the price of an instance cannot follow: it is of the whole size, all the time.

    Raises:
        MistakeAt: the charge is by use or of a kind of rows.
    """
    if charge.basis != "allocated":
        raise MistakeAt(
            (index, "basis"),
            f"over instance time only what is allocated is billed, not what is {charge.basis}",
        )
    if charge.when != "always":
        raise MistakeAt(
            (index, "when"),
            "over instance time every instance is billed alike: write a tariff for each kind",
        )


def _check_bound(key: str | None, bound: int) -> None:
    for kind in KINDS:
        if kind.key == key:
            kind.check(bound)


def _parse_amount(text: str, resource: str, basis: str) -> int:
    try:
        if resource in ("memory", "storage"):
            return parse_size(text)
        return parse_cpu(text) if basis in ("allocated", "reserved") else parse_duration(text)
    except UnitError as error:
        raise ValueError(str(error)) from error


class Fee(Form):
    """The fixed price of an invocation (C_0 of Equation 1)."""

    price: Money | None
    source: Text
    note: Text | None = None


class Idle(Form):
    """The price of instances that are there on the account of hints, by allocated memory."""

    price: Money
    per: Literal["GB-second", "GB-hour"] = "GB-second"
    source: Text
    note: Text | None = None

    @property
    def unit_price(self) -> Fraction:
        """Dollars per byte x ns, exactly."""
        return Fraction(self.price) / _PER_UNIT[self.per]


class FreeTier(Form):
    """What is free each month; taken off a bill only when that is asked for."""

    requests: Annotated[int, Field(ge=0)] | None = None
    vcpu_seconds: Annotated[int, Field(ge=0)] | None = None
    gb_seconds: Annotated[int, Field(ge=0)] | None = None
    per: Literal["month"] = "month"
    source: Text
    note: Text | None = None


class Limits(Form):
    """What an invocation may not exceed; priced rows beyond it are counted, not dropped."""

    execution: Duration | None = None
    cpu_time: Duration | None = None
    memory: Size | None = None
    source: Text
    note: Text | None = None


def _require_fee_of_requests(schema: dict[str, Any]) -> None:
    """In the JSON Schema, `fee` is missing only where instance time is not billed."""
    schema["required"].remove("fee")
    kind = {"properties": {"kind": {"const": "instance"}}, "required": ["kind"]}
    schema["if"] = {"properties": {"time": kind}}
    schema["else"] = {"required": ["fee"]}


class Tariff(Form):
    """One tariff: a platform's public prices and rules at a date, or a billing model of a paper."""

    model_config = ConfigDict(json_schema_extra=_require_fee_of_requests)

    id: TariffId
    provider: Text
    product: Text
    region: Text | None
    architecture: Literal["x86_64", "arm64", "any"]
    sold: bool = Field(True, description="Whether anyone sells by it; a paper's model is not sold")
    currency: Literal["USD"]
    as_of: Date
    summary: Text
    sources: Annotated[dict[str, Source], Field(min_length=1)]
    time: BillableTime
    charges: Annotated[list[Charge], Field(min_length=1)]
    fee: Fee
    idle: Idle | None = Field(
        None, description="What instances cost that hints had kept or started, come true or not"
    )
    sizes: Sizes
    free_tier: FreeTier | None = None
    limits: Limits | None = None
    notes: list[Text] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _without_fee(cls, value: Any) -> Any:
        """Over instance time there is no invocation, so that a file needs no fee of 0."""
        time = value.get("time") if isinstance(value, dict) else None
        if not isinstance(time, dict) or time.get("kind") != "instance" or "fee" in value:
            return value
        return {**value, "fee": {"price": "0", "source": str(time.get("source"))}}

    @field_validator("charges")
    @classmethod
    def _charges_fit_time(cls, value: list[Charge], info: ValidationInfo) -> list[Charge]:
        time = info.data.get("time")
        if time is None:
            return value
        for index, charge in enumerate(value):
            if time.kind == "instance":
                _check_of_instances(charge, index)
            if charge.resource in ("storage", "instance") and time.kind != "instance":
                raise ValueError(f"{charge.resource} is only billed over instance time")
            if time.kind == "cpu" and (charge.resource, charge.basis) != ("cpu", "used"):
                raise ValueError("over CPU time, only CPU used can be billed")
            if time.kind == "cpu" and charge.rules:
                raise ValueError("over CPU time, granularity and minimum stand under time")
        return value

    @field_validator("fee")
    @classmethod
    def _fee_fits_time(cls, value: Fee, info: ValidationInfo) -> Fee:
        time = info.data.get("time")
        is_free = value.price is not None and not Fraction(value.price)
        if time is not None and time.kind == "instance" and not is_free:
            raise MistakeAt(
                ("price",), "over instance time there is no invocation to pay a fee for"
            )
        return value

    @field_validator("idle")
    @classmethod
    def _idle_fits_time(cls, value: Idle | None, info: ValidationInfo) -> Idle | None:
        time = info.data.get("time")
        if value is not None and time is not None and time.kind == "instance":
            raise ValueError(
                "over instance time what instances idle is billed already: leave it out"
            )
        return value

    @field_validator("free_tier")
    @classmethod
    def _free_tier_fits_time(cls, value: FreeTier | None, info: ValidationInfo) -> FreeTier | None:
        time = info.data.get("time")
        if value is not None and time is not None and time.kind == "instance":
            raise ValueError("over instance time nothing takes a free tier off: leave it out")
        return value

    @field_validator("sizes")
    @classmethod
    def _sizes_fit_charges(cls, value: AnySizes, info: ValidationInfo) -> AnySizes:
        charged = {
            charge.resource
            for charge in info.data.get("charges", ())
            if charge.basis == "allocated"
        }
        if isinstance(value, Fixed):
            if "cpu" in charged and value.cpu is None:
                raise ValueError("allocated cpu is charged, so the fixed size must name its cpu")
            if "memory" in charged and value.memory is None:
                raise ValueError("allocated memory is charged, so the fixed size must name it")
        return value

    @property
    def by_instance(self) -> bool:
        """Whether instance time is billed, which the invocation table cannot tell."""
        return self.time.kind == "instance"

    @property
    def unpriced_figures(self) -> tuple[str, ...]:
        """What has no known price, in words; empty if the tariff can be billed."""
        missing = [f"{c.resource} {c.basis}" for c in self.charges if c.price is None]
        return (*missing, "fee") if self.fee.price is None else tuple(missing)

    @property
    def rounds(self) -> bool:
        """Whether any granularity or minimum applies, so that rounding can add to the bill."""
        return self.time.rules.rounds or any(charge.rules.rounds for charge in self.charges)

    def doubts(self) -> Iterator[str]:
        """What may be billed and is seldom meant, with its key."""
        for position, charge in enumerate(self.charges):
            free, most = (charge.limit(kind.key) for kind in (Free, Maximum))
            if free is not None and most is not None and free > most:
                texts = (getattr(charge, kind.key) for kind in (Free, Maximum))
                yield (
                    "charges[{}].{}: the first {} cost nothing, and of what is beyond them at most"
                    " {} is billed: the maximum is of what is left"
                ).format(position, Free.key, *texts)

    def cited(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Every reference to a source, with its path in the form."""
        yield ("time", "source"), self.time.source
        for position, charge in enumerate(self.charges):
            yield ("charges", position, "source"), charge.source
        yield ("fee", "source"), self.fee.source
        if self.idle is not None:
            yield ("idle", "source"), self.idle.source
        yield ("sizes", "source"), self.sizes.source
        if self.free_tier is not None:
            yield ("free_tier", "source"), self.free_tier.source
        if self.limits is not None:
            yield ("limits", "source"), self.limits.source
