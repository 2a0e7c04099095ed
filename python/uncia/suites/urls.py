"""Suites on functions that run elsewhere: their URLs in place of what files would deploy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from uncia import yamlio
from uncia.forms import Form, Headers, Url
from uncia.platforms import adapter
from uncia.units import Size


class Address(Form):
    """Where a function runs, and what is known of it."""

    url: Url | None = Field(None, description="Its URL")
    urls: list[Url] = Field(default_factory=list, description="Those of its replicas, instead")
    method: Literal["GET", "POST", "PUT"] | None = None
    headers: Headers = Field(default_factory=dict, description="Sent with every request")
    memory: Size | None = Field(None, gt=0, description="That it has there")
    vcpu: float | int | None = Field(None, gt=0, description="That it has there")

    @model_validator(mode="after")
    def _is_somewhere(self) -> Address:
        if (self.url is None) == (not self.urls):
            raise ValueError("a function has either url or urls")
        return self


def _full(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


class Addresses(Form):
    """The file of ``--urls``."""

    functions: dict[str, Annotated[Address, BeforeValidator(_full)]] = Field(
        min_length=1,
        description="By FILE.FUNCTION, the name of an experiment file without .yaml and the"
        " function's name in it; or by the source, where one function alone has it",
    )


@cache
def read(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Read a file of addresses; by name, what takes the place of a function's source.

    Raises:
        UnciaError: it cannot be read, or is not right; with file, line and key.
    """
    document = yamlio.load(path)
    yamlio.validate(Addresses, document)
    functions: Mapping[str, Any] = document.data["functions"]
    return {
        name: {"url": it} if isinstance(it, str) else dict(it) for name, it in functions.items()
    }


def apply(document: yamlio.Document, known: Mapping[str, Mapping[str, Any]]) -> yamlio.Document:
    """An experiment file whose functions are where ``known`` says, as far as it knows them.

    Settings stay behind: a function at a URL has those that it was given there.
    """
    functions: Mapping[str, Any] = document.data.get("functions") or {}
    changed = {
        alias: _addressed(document, alias, function, known) for alias, function in functions.items()
    }
    kept = {key: value for key, value in document.data.items() if key != "services"}
    return document.with_data({**kept, "functions": changed})


def _addressed(
    document: yamlio.Document,
    alias: str,
    function: Mapping[str, Any],
    known: Mapping[str, Mapping[str, Any]],
) -> Mapping[str, Any]:
    names = [name for name in _names(document, alias, function) if name in known]
    if not names or function.get("reach") or "source" not in function:
        return function
    replicas = int(function.get("replicas", 1))
    address = {**known[names[0]], "parameters_of": function["source"]}
    if "urls" in address:
        address["urls"] = address["urls"][:replicas]
    if len(address.get("urls", [None])) < replicas:
        return function
    if "parameters" in function:
        address["parameters"] = function["parameters"]
    return address


def _names(document: yamlio.Document, alias: str, function: Mapping[str, Any]) -> Iterator[str]:
    """Under which names a function's address may be given."""
    yield f"{Path(document.name).stem}.{alias}"
    sources = Counter(it.get("source") for it in document.data["functions"].values())
    source = function.get("source")
    # Functions of one source differ in their settings, and would be one and the same there.
    if source is not None and sources[source] == 1:
        yield source


def are_needed(data: Mapping[str, Any]) -> bool:
    """Whether an experiment file's platform deploys nothing, and has functions at URLs."""
    kind = (data.get("platform") or {}).get("kind")
    return kind is not None and not adapter(kind).CAPABILITIES.deploys


def lacking(document: yamlio.Document) -> dict[str, list[str]]:
    """What keeps each experiment of a file from being carried out by URLs alone.

    Args:
        document: an experiment file that is valid but for what its platform does not take.

    Returns:
        Sentences by experiment; none where the file's platform deploys functions itself.
    """
    data = document.data
    experiments: Mapping[str, Any] = data.get("experiments") or {}
    if not are_needed(data):
        return {name: [] for name in experiments}
    chains = adapter(data["platform"]["kind"]).CAPABILITIES.chains
    triggers = ["triggers need a platform that has them"] if data.get("triggers") else []
    return {
        name: [*_of_sender(experiment, data, chains), *triggers]
        for name, experiment in experiments.items()
    }


def of_function(document: yamlio.Document, alias: str) -> str:
    """Why a function has no URL on a platform that deploys nothing; "" if it has one."""
    function: Mapping[str, Any] = document.data["functions"][alias]
    if "source" not in function:
        return ""
    if function.get("reach"):
        return f"{alias} reaches services of the run, and functions at URLs reach none"
    names = " or ".join(_names(document, alias, function))
    replicas = int(function.get("replicas", 1))
    several = f", with {replicas} urls" if replicas > 1 else ""
    return f"no URL is known for {alias}: give it in the file of --urls as {names}{several}"


def _of_sender(
    sender: Mapping[str, Any], data: Mapping[str, Any], chains: frozenset[str]
) -> Iterator[str]:
    """What of an experiment, or of a stream of its mix, takes more than a URL."""
    if sender.get("settings") or "memory" in (sender.get("sweep") or {}):
        yield "settings of functions at URLs cannot be changed"
    if "chain" in sender:
        kind = sender.get("kind", "client")
        if kind not in chains:
            yield f"chains of the kind {kind} need a platform that carries them on"
        stages = data["chains"][sender["chain"]]["stages"].values()
        if any(stage.get("settings") for stage in stages):
            yield "settings of functions at URLs cannot be changed"
    for stream in sender.get("mix") or ():
        yield from _of_sender(stream, data, chains)
