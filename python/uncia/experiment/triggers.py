"""Triggers of an experiment file: what is begun for every change of a document below a prefix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from uncia import yamlio
from uncia.experiment.stages import ChainPlan
from uncia.forms import Form, Name
from uncia.workload import chains

SERVICE: Final = "documents"
"""The service whose changes triggers follow."""

KEY: Final = "change"
"""The key of the change in an event."""

Change = Literal["put", "delete"]


class TriggerForm(Form):
    """What is begun for every change of a document below a prefix."""

    prefix: str = Field("", max_length=1_024, description="What the documents' keys begin with")
    changes: list[Change] = Field(["put", "delete"], min_length=1, description="Which changes")
    function: Name | None = Field(None, description="One of the file's functions, by an event")
    chain: Name | None = Field(None, description="One of the file's chains, instead of a function")
    kind: chains.Kind | None = Field(
        None,
        description="Who goes on with the chain: sequence (the platform); nested or asynchronous"
        " (functions)",
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="The event beside `change`, over the function's own; of a chain its first"
        " stage's say it",
    )

    @field_validator("changes")
    @classmethod
    def _are_different(cls, changes: list[Change]) -> list[Change]:
        if len(set(changes)) < len(changes):
            raise ValueError("each kind of change is named once")
        return changes

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.function is None) == (self.chain is None):
            raise ValueError("a trigger begins a function or a chain, one of them")
        if self.function is not None and self.kind is not None:
            raise ValueError("kind is of a chain, and there is none")
        if self.chain is not None and self.kind in (None, "client"):
            raise ValueError(
                "there is no client to carry the chain on: kind is sequence, nested or asynchronous"
            )
        if self.chain is not None and self.parameters:
            raise ValueError("with a chain, parameters belong into its stages")
        if KEY in self.parameters:
            raise ValueError(f"the event's key {KEY!r} is that of the change itself")
        return self


@dataclass(frozen=True)
class TriggerPlan:
    """A trigger as it is made.

    Attributes:
        name: in the file; rows call the function's invocations so, as their stage.
        prefix: what the keys of its documents begin with.
        changes: ``put``, ``delete`` or both.
        deployment: the key of the function, or of the chain's first stage's.
        event: what the function is given beside the change.
        chain: what is begun instead of a function.
    """

    name: str
    prefix: str
    changes: tuple[Change, ...]
    deployment: str
    event: Mapping[str, Any]
    chain: ChainPlan | None = None

    def deployments(self) -> set[str]:
        """The keys of all that it needs to be deployed."""
        stages = () if self.chain is None else self.chain.stages
        return {self.deployment, *(stage.deployment for stage in stages)}

    def stage(self) -> str | None:
        """What the rows call the invocations that it begins itself; of a sequence, its states."""
        return self.name if self.chain is None else self.chain.first


def place(name: str) -> yamlio.KeyPath:
    """Where a trigger stands in the file."""
    return ("triggers", name)
