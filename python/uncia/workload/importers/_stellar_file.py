"""The file of STeLLAR's client: its keys, which Go reads in any spelling of their case."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from uncia import yamlio
from uncia.forms import Form
from uncia.workload.importers.base import Number


class SubExperiment(Form):
    """One entry of ``SubExperiments``."""

    Title: str = ""
    Function: str = "producer-consumer"
    Handler: str | None = None
    Runtime: str | None = None
    PackageType: Literal["Zip", "Container", "Image"] = "Zip"
    PackagePattern: str | None = None
    Bursts: int = Field(0, ge=0)
    BurstSizes: list[int] = Field(default_factory=list)
    IATSeconds: Number = Fraction(0)
    IATType: Literal["stochastic", "deterministic", "step"] = "stochastic"
    DesiredServiceTimes: list[str] = Field(default_factory=list)
    PayloadLengthBytes: int = Field(0, ge=0)
    Parallelism: int = Field(1, ge=0)
    FunctionMemoryMB: int = Field(0, ge=0)
    FunctionImageSizeMB: Number = Fraction(0)
    DataTransferChainLength: int = Field(1, ge=0)
    StorageTransfer: bool = False
    SnapStartEnabled: bool = False
    CPUBoostEnabled: bool = False
    Visualization: str | None = None
    RepurposeIdentifier: Any = None
    ID: Any = None
    BusySpinIncrements: Any = None
    Endpoints: Any = None
    Routes: Any = None

    @property
    def is_chain(self) -> bool:
        """Whether its functions invoke one another."""
        return self.DataTransferChainLength > 1

    @property
    def has_payload(self) -> bool:
        """Whether the functions of its chain hand a payload on."""
        return self.is_chain and self.PayloadLengthBytes > 0


class Config(Form):
    """The whole file."""

    Sequential: bool = False
    Provider: str = "aws"
    Runtime: str | None = None
    Function: Any = None
    SubExperiments: list[SubExperiment] = Field(min_length=1)


def spelled(document: yamlio.Document, warnings: list[str]) -> yamlio.Document:
    """Return the document with STeLLAR's spelling of keys, because Go ignores their case.

    A key in two spellings is there twice, of which the last counts: a warning.
    """

    def respell(data: Any, form: type[Form], place: str = "") -> Any:
        if not isinstance(data, dict):
            return data
        known: dict[str, str] = {key.lower(): key for key in form.model_fields}
        result: dict[str, Any] = {}
        for key, value in data.items():
            name = known[key.lower()] if key.lower() in known else str(key)
            if name in result:
                warnings.append(f"{place}{name}: the key is there again as {key}, which counts")
            result[name] = value
        return result

    data = respell(document.data, Config)
    if isinstance(data.get("SubExperiments"), list):
        data["SubExperiments"] = [
            respell(sub, SubExperiment, f"SubExperiments[{index}].")
            for index, sub in enumerate(data["SubExperiments"])
        ]
    return document.with_data(data)
