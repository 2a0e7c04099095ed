"""Where a suite is carried out instead of where its experiment files say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from uncia import platforms, profiles, yamlio
from uncia.errors import UnciaError
from uncia.suites import urls

_EMBEDDED: Final = "embedded"
_HTTP: Final = "http"


@dataclass(frozen=True)
class Target:
    """A platform, or a provider that the embedded platform is to be like.

    Attributes:
        platform: the kind of platform; None for that of each file.
        like: a profile; None for that of each file. What a file sets itself still counts.
        urls: the file with the URLs of functions, on the platform ``http``.
    """

    platform: str | None = None
    like: str | None = None
    urls: str | None = None

    def check(self) -> None:
        """Check that there is such a platform and such a profile.

        Raises:
            UnciaError: there is none, only the embedded platform can be like a provider, or the
                file of URLs is missing or not right.
        """
        if self.urls is not None:
            if self.platform != _HTTP:
                raise UnciaError("--urls is of functions that run elsewhere: add --platform http")
            urls.read(Path(self.urls))
        if self.platform is not None:
            platforms.adapter(self.platform)
        if self.like is not None:
            if self.platform not in (None, _EMBEDDED):
                raise UnciaError(
                    f"--like {self.like}: the platform {self.platform} is like itself",
                    hint="A profile is for --platform embedded.",
                )
            profiles.find(self.like)

    def apply(self, document: yamlio.Document) -> yamlio.Document:
        """An experiment file for this platform.

        The options of a file are those of its kind of platform, so another kind has none of them.
        """
        if self == Target():
            return document
        platform: dict[str, Any] = dict(document.data.get("platform", {}))
        if self.platform is not None and platform.get("kind") != self.platform:
            platform = {"kind": self.platform}
        if self.like is not None and platform.get("kind") == _EMBEDDED:
            platform["like"] = self.like
        changed = document.with_data({**document.data, "platform": platform})
        if self.platform == _HTTP and document.data["platform"].get("kind") != _HTTP:
            known = {} if self.urls is None else urls.read(Path(self.urls))
            return urls.apply(changed, known)
        return changed

    def __str__(self) -> str:
        words = [] if self.platform is None else [f"--platform {self.platform}"]
        words += [] if self.like is None else [f"--like {self.like}"]
        words += [] if self.urls is None else [f"--urls {self.urls}"]
        return " ".join(words)
