"""The base of every form that a person writes: strict, and closed to unknown keys."""

from pydantic import BaseModel, ConfigDict


class Form(BaseModel):
    """A YAML form: unknown keys are errors, text is no number, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
