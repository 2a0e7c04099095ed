"""What requests say of those to come, the same in experiment files and simulations.

The schedule is fixed, so that whoever sends it knows: the first request of each moment says when
the next come, and how many. How true that is, is drawn from the seed.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from uncia.forms import Form
from uncia.units import Duration

ERROR = 0.2
COUNT = 5


class Hints(Form):
    """How true what requests say is."""

    kind: Literal["perfect", "noisy", "lying"] = Field(
        description="perfect: all of it; noisy: the time is wrong by a part of the gap; lying: of"
        " times at which nothing comes"
    )
    error: float | None = Field(
        None, ge=0, le=1, description=f"noisy: up to which part of the gap, by default {ERROR}"
    )
    missing: float | None = Field(
        None, ge=0, le=1, description="noisy: which part of the requests say nothing, by default 0"
    )
    count: int | None = Field(
        None,
        ge=1,
        le=2**32 - 1,
        description=f"lying: how many are said to come, by default {COUNT}",
    )
    within: Duration | None = Field(
        None, ge=0, description="How exact they say to be; by default they do not"
    )

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        allowed = {"noisy": ("error", "missing"), "lying": ("count",)}.get(self.kind, ())
        for name in ("error", "missing", "count"):
            if getattr(self, name) is not None and name not in allowed:
                raise ValueError(f"{name} is not of hints that are {self.kind}")
        return self

    def engine(self) -> dict[str, Any]:
        """The hints as the engine takes them."""
        config: dict[str, Any] = {"kind": self.kind, "within_ns": self.within}
        if self.kind == "noisy":
            config["error"] = ERROR if self.error is None else self.error
            config["missing"] = self.missing or 0.0
        elif self.kind == "lying":
            config["count"] = self.count or COUNT
        return config
