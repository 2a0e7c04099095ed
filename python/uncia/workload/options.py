"""Converts the options of ``uncia load`` and ``uncia.load`` to a workload.

Errors name the option that a person wrote, not the key of the form that it became.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.workload import model
from uncia.workload.arrivals import ArrivalProcess, Arrivals
from uncia.workload.client import Share
from uncia.workload.model import Overrides, Workload

NAME: Final = "load"
"""Name of run, experiment and function in the rows of a load on a URL."""

_SUFFIXES: Final = (".yaml", ".yml")
_OF_ROWS: Final = ("memory", "vcpu", "execution")
_OF_FUNCTION: Final = ("method", "headers", "query", "http", "unix_socket", *_OF_ROWS)
_OF_WORKLOAD: Final = ("max_connections", "timeout", "connect_timeout", "first_byte_timeout")
_OF_TLS: Final = ("insecure", "ca_file")
_OF_LOOP: Final = ("think", "requests")

# Keys of the form whose option has another name, and keys that belong to no option.
_RENAMED: Final = {
    "clients": "closed",
    "pool": "connections",
    "random": "random-body",
    "text": "body",
    "region": "sign-aws",
    "service": "sign-aws",
}
_STRUCTURE: Final = frozenset({"streams", "functions", NAME, "tls", "body", "sign", "aws_sigv4"})

_RFC_3339: Final = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(?:\.(?P<fraction>\d{1,9}))?(?:[Zz]|[+-]\d{2}:\d{2})"
)


def is_file(target: str | Path | Mapping[str, Any]) -> bool:
    """Whether a target names a workload file, not a URL."""
    if isinstance(target, str):
        return "://" not in target and (target.endswith(_SUFFIXES) or Path(target).is_file())
    return isinstance(target, Path)


def read(
    target: str | Path | Mapping[str, Any], values: Mapping[str, Any]
) -> tuple[Workload, Path]:
    """Read the workload that a target and the options for a URL describe.

    Args:
        target: a URL, a workload file, or the content of one.
        given: the options of a load on a URL that were given (see :func:`from_url`).

    Returns:
        The workload, and the folder that names of files in it are relative to.

    Raises:
        UnciaError: the file or an option is invalid, or an option belongs in the file.
    """
    if isinstance(target, str) and not is_file(target):
        return from_url(target, values), Path()
    if values:
        names = ", ".join(name.replace("_", "-") for name in values)
        raise UnciaError(
            f"{names}: with a workload file, this is a key of the file, not an option",
            hint="Options with a file are only those of sending it: seed, processes, out, ...",
        )
    if isinstance(target, Mapping):
        return model.check(yamlio.Document("workload", dict(target), {})), Path()
    path = Path(target)
    return model.load(path)[0], path.parent


def from_url(url: str, values: Mapping[str, Any]) -> Workload:
    """Make the workload of a load on one URL.

    Args:
        url: ``http://...`` or ``https://...``.
        given: options by name as in :func:`uncia.load`, without those that were not given; what
            has no name there is under ``set``, keys of the arrivals.

    Raises:
        UnciaError: an option is missing, unknown, or has a value that it can't have.
    """
    remaining = dict(values)
    function: dict[str, Any] = {"url": url, **_take(remaining, _OF_FUNCTION)}
    for key in ("headers", "query"):
        if key in function:
            function[key] = {str(name): str(value) for name, value in function[key].items()}
    body = _body(remaining)
    if body is not None:
        function["body"] = body
    if "sign_aws" in remaining:
        function["sign"] = {"aws_sigv4": _sign(str(remaining.pop("sign_aws")))}
    form: dict[str, Any] = {
        "name": NAME,
        "functions": {NAME: function},
        **_take(remaining, _OF_WORKLOAD),
    }
    if "connections" in remaining:
        form["connections"] = connections(str(remaining.pop("connections")))
    tls = _take(remaining, _OF_TLS)
    if tls:
        form["tls"] = {key: str(value) if key == "ca_file" else value for key, value in tls.items()}
    form["streams"] = [{"function": NAME, **_loop(remaining)}]
    try:
        return Workload.model_validate(form)
    except ValidationError as error:
        raise to_usage_error(error) from error


def process(values: Mapping[str, Any]) -> ArrivalProcess:
    """Make the arrival process of options such as ``{"kind": "poisson", "rate": "100/s", ...}``.

    Raises:
        UnciaError: one is missing, unknown for this kind, or has no or a wrong unit.
    """
    adapter: TypeAdapter[ArrivalProcess] = TypeAdapter(Arrivals)
    try:
        return adapter.validate_python(dict(values))
    except ValidationError as error:
        kind = str(values.get("kind"))
        sentences = [_arrivals_sentence(kind, detail) for detail in error.errors()]
        raise UnciaError("\n".join(dict.fromkeys(sentences))) from error


def override(workload: Workload, **values: Any) -> Workload:
    """A workload with its own seed, round-trip probes or stop rules, where they are not None.

    :raises UnciaError: a value is wrong.
    """
    try:
        over = Overrides.model_validate(values)
    except ValidationError as error:
        raise to_usage_error(error) from error
    rules = {
        "error_budget": over.error_budget,
        "lag_p99": over.max_lag,
        "slowdown": over.max_slowdown,
    }
    changed: dict[str, Any] = {"seed": over.seed, "rtt_probes": over.rtt_probes}
    changed["stop"] = workload.stop.model_copy(update=_without_none(rules))
    return workload.model_copy(update=_without_none(changed))


def connections(text: str) -> str | dict[str, Any]:
    """Parse ``reuse``, ``fresh`` or ``pool:N``.

    Raises:
        UnciaError: it is none of these.
    """
    word, colon, number = text.partition(":")
    if word == "pool" and colon and number.isdecimal() and int(number) > 0:
        return {"pool": int(number)}
    if text not in ("reuse", "fresh"):
        raise UnciaError(f"connections: {text!r} is not known (allowed: reuse, fresh, pool:N)")
    return text


def share(text: str) -> Share:
    """Parse ``2/3``, the second of three.

    Raises:
        UnciaError: it has another form, or is impossible (``4/3``).
    """
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    index, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= of:
        raise UnciaError(f"share: {text!r} is not like 2/3, the second of three")
    return Share(index - 1, of)


def start(moment: str | datetime) -> int:
    """Convert a start time to Unix nanoseconds.

    Args:
        when: RFC 3339 text such as ``2026-05-01T12:00:00Z``, or a datetime with a time zone.

    Raises:
        UnciaError: it is no such time; without a zone, machines could take it differently.
    """
    fraction = ""
    if isinstance(moment, str):
        match = _RFC_3339.fullmatch(moment.strip())
        try:
            if match is None:
                raise ValueError
            fraction = match["fraction"] or ""
            moment = datetime.fromisoformat(re.sub(r"\.\d+", "", moment.strip().upper()))
        except ValueError as error:
            raise UnciaError(
                f"start-at: {moment!r} is not a time with its zone such as 2026-05-01T12:00:00Z"
            ) from error
    else:
        moment = moment
    if moment.tzinfo is None:
        raise UnciaError(f"start-at: {moment} has no time zone")
    nanoseconds = int(fraction.ljust(9, "0")) if fraction else moment.microsecond * 1_000
    return int(moment.replace(microsecond=0).timestamp()) * 1_000_000_000 + nanoseconds


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _take(remaining: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: remaining.pop(key) for key in keys if key in remaining}


def _body(remaining: dict[str, Any]) -> dict[str, str] | None:
    body, size = remaining.pop("body", None), remaining.pop("random_body", None)
    if size is not None:
        if body is not None:
            raise UnciaError("body and random-body: a request has one body")
        return {"random": size}
    if isinstance(body, bytes):
        try:
            body = body.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(body).decode("ascii")}
    return None if body is None else {"text": body}


def _sign(text: str) -> dict[str, str]:
    region, slash, service = text.partition("/")
    if not slash or not region or not service:
        raise UnciaError(f"sign-aws: {text!r} is not like us-east-1/lambda, region and service")
    return {"region": region, "service": service}


def _loop(remaining: dict[str, Any]) -> dict[str, Any]:
    """Make the open or closed loop of the remaining options."""
    for key, value in remaining.pop("set", {}).items():
        if key in remaining or key == "kind":
            raise UnciaError(f"set: {key!r} has an option of its own, or is given twice")
        remaining[key] = value
    if "closed" in remaining:
        loop = {"clients": remaining.pop("closed"), **_take(remaining, ("duration", *_OF_LOOP))}
        if remaining:
            names = ", ".join(key.replace("_", "-") for key in remaining)
            raise UnciaError(f"{names}: a closed loop sends when answers come, not by arrivals")
        return {"closed": loop}
    early = [key for key in _OF_LOOP if key in remaining]
    if early:
        raise UnciaError(f"{' and '.join(early)}: only a closed loop has this; say closed as well")
    kind = remaining.pop("arrivals", "constant")
    if isinstance(kind, Mapping):
        if remaining:
            raise UnciaError(f"{', '.join(remaining)}: belongs into the mapping of the arrivals")
        return {"arrivals": process(kind)}
    return {"arrivals": process({"kind": kind, **remaining})}


def to_usage_error(error: ValidationError) -> UnciaError:
    """Write a sentence for each mistake in options: ``timeout: '60' is not a duration: ...``."""
    sentences = []
    for detail in error.errors():
        parts = [str(part) for part in detail["loc"] if isinstance(part, str)]
        names = [part for part in parts if part not in _STRUCTURE]
        # An item of a list or mapping, such as a header's name, follows its option's name.
        location = ": ".join(_RENAMED.get(word, word).replace("_", "-") for word in names[:2])
        if names[:1] == ["closed"]:
            location = _RENAMED.get(names[-1], names[-1])
        elif names[:1] in (["connections"], ["http"]):
            location = names[0]
        message = str(detail["msg"]).removeprefix("Value error, ")
        if message.startswith("Input should be "):
            message = f"must be {message.removeprefix('Input should be ')}, not {detail['input']!r}"
        sentences.append(f"{location}: {message}" if location else message)
    return UnciaError("\n".join(dict.fromkeys(sentences)))


def _arrivals_sentence(kind: str, detail: Any) -> str:
    """Write a pydantic error about an arrival process as a sentence."""
    location = ".".join(str(part) for part in detail["loc"] if part != kind)
    match detail["type"]:
        case "union_tag_invalid":
            allowed = detail["ctx"]["expected_tags"]
            return f"arrivals: {kind!r} is not known (allowed: {allowed})"
        case "missing":
            return f"{kind} arrivals need a {location}"
        case "extra_forbidden":
            return f"{kind} arrivals have no {location}"
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{location}: {message}" if location else message
