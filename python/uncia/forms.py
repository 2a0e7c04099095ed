"""The base of all YAML forms, which refuses unknown keys, and types for names, headers and URLs."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict

# Words that make up resource names on platforms whose limit is 64 characters, with room for a run's
# prefix and a replica's number.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")


def _check_name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise ValueError(
            f"{text!r} is not a name: write 1 to 32 letters, digits, - or _, beginning with a"
            " letter or digit"
        )
    return text


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if _HEADER.fullmatch(name) is None:
            raise ValueError(f"{name!r} is not the name of an HTTP header")
        if any(ord(character) < 0x20 or ord(character) == 0x7F for character in value):
            raise ValueError(f"the value of header {name!r} holds a control character")
    return headers


def _check_url(url: str) -> str:
    if re.fullmatch(r"https?://[^\s/?#]+[^\s]*", url) is None:
        raise ValueError(f"{url!r} is not an http:// or https:// address")
    return url


Name = Annotated[str, AfterValidator(_check_name)]
Headers = Annotated[dict[str, str], AfterValidator(_check_headers)]
Url = Annotated[str, AfterValidator(_check_url)]


class MistakeAt(ValueError):
    """A mistake in a part of what a validator is given.

    Attributes:
        below: the path of the part, from the validated value on.
    """

    def __init__(self, below: tuple[str | int, ...], message: str) -> None:
        super().__init__(message)
        self.below = below


class Form(BaseModel):
    """A YAML form: refuses unknown keys, does not convert text to numbers, and is immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def explain_unknown(cls, key: str) -> str | None:
        """Return a sentence about a key that the form does not have.

        Args:
            key: such as one that stands elsewhere in the file.

        Returns:
            None: nothing is known of it; the message names the nearest key.
        """
        del key
        return None
