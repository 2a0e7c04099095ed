"""Resolves a workload file to the load generator's streams, bodies and credentials."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from uncia.errors import UnciaError
from uncia.workload import chains, columns, mapping, model
from uncia.workload.client import ClosedLoop, Load, StopRules, Stream
from uncia.workload.columns import ColumnField
from uncia.workload.mapping import MappedReplay
from uncia.workload.model import (
    AwsSigV4,
    Body,
    Function,
    Pool,
    Workload,
)
from uncia.workload.replay import expansion

PLATFORM: Final = "http"
"""The platform in the rows: something that answers HTTP, of which nothing else is known."""


@dataclass(frozen=True)
class Prepared:
    """A load that is complete but for the file of its rows.

    Attributes:
        load: the load.
        sentences: descriptions of what each stream sends.
        expected: approximate number of requests; 0 if it depends on the answers (closed loops).
        workload: the file that it was made of.
        notes: sentences for the user.
    """

    load: Load
    sentences: list[str]
    expected: int
    workload: Workload
    notes: list[str] = field(default_factory=list)

    @property
    def closed(self) -> bool:
        """Whether any stream is a closed loop."""
        return any(stream.closed is not None for stream in self.load.streams)

    @property
    def open(self) -> bool:
        """Whether any stream is an open loop."""
        return any(stream.arrivals is not None for stream in self.load.streams)

    def sends(self) -> str:
        """Describe the load in a line."""
        return _joined(self.sentences)


def prepare(workload: Workload, folder: Path, *, dry_run: bool = False) -> Prepared:
    """Resolve a workload.

    Args:
        workload: the checked file.
        folder: the base of paths in it.
        dry_run: nothing is sent, so no credentials are needed.

    Raises:
        UnciaError: a file cannot be read, a replay is invalid, or there are no credentials to sign
            with.
    """
    parts = _Parts(workload, folder, dry_run=dry_run)
    for stream in workload.streams:
        parts.add(stream)
    if workload.replay is not None:
        parts.replay(workload.replay)
    load = _load(workload, folder, parts.streams, dry_run=dry_run)
    return Prepared(load, parts.sentences, parts.expected, workload, parts.notes)


class _Parts:
    """Collects the streams of a workload, and their descriptions."""

    def __init__(self, workload: Workload, folder: Path, *, dry_run: bool) -> None:
        self.streams: list[Stream] = []
        self.sentences: list[str] = []
        self.expected = 0
        self.notes: list[str] = []
        self._workload = workload
        self._folder = folder
        self._requests = {
            name: _requests(name, function, folder, dry_run=dry_run)
            for name, function in workload.functions.items()
        }
        self._used: dict[str, int] = {}

    def add(self, stream: model.Stream) -> None:
        """Add a stream of the file."""
        closed = None if stream.closed is None else ClosedLoop.of(stream.closed)
        loop = stream.arrivals if stream.closed is None else stream.closed
        assert loop is not None, "a stream has arrivals or a closed loop"
        description = loop.sentence()
        requests = loop.expected_requests()
        if stream.chain is not None:
            stages = self._chain(stream.chain, stream, closed)
            self.expected += requests * len(stages)
            self.sentences.append(
                f"chain {stream.chain} ({chains.sentence(stages)}): {description}"
            )
            return
        assert stream.function is not None, "a stream has a function or a chain"
        self._send(
            stream.function, stream.function, stream.start, arrivals=stream.arrivals, closed=closed
        )
        self.expected += requests
        alone = len(self._workload.functions) == 1
        self.sentences.append(description if alone else f"{stream.function} {description}")

    def _chain(
        self, name: str, stream: model.Stream, closed: ClosedLoop | None
    ) -> dict[str, model.Stage]:
        """Add a stream for each stage of a chain."""
        stages = self._workload.chains[name].stages
        waits = chains.predecessors(stages)
        first = len(self.streams)
        positions = {stage: first + index for index, stage in enumerate(stages)}
        for stage_name, stage in stages.items():
            sent: dict[str, Any] = {"stage": stage_name}
            if waits[stage_name]:
                sent["after"] = tuple(positions[predecessor] for predecessor in waits[stage_name])
                sent["after_failures"] = stage.after_failures
                sent["think_ns"] = stage.think.min
                sent["think_max_ns"] = stage.think.most_ns
            else:
                sent |= {"arrivals": stream.arrivals, "closed": closed}
            if stage.body is not None:
                owner = f"stage {stage_name} of chain {name}"
                sent["body"] = _body(owner, stage.body, self._folder)
                # The engine refuses fields that only the function's body uses.
                function = self._workload.functions[stage.function]
                fields = self._requests[stage.function]["fields"]
                sent["fields"] = _used_fields(fields, function, sent["body"])
            start = 0 if waits[stage_name] else stream.start
            self._send(stage.function, stage.function, start, **sent)
        return stages

    def replay(self, replay: MappedReplay) -> None:
        """Add a stream for each function of a recorded table."""
        functions = self._workload.functions
        fields = {name: _columns(function) for name, function in functions.items()}
        wanted = {field.column for each in fields.values() for field in each.values()}
        expanded = expansion(replay, self._workload.seed, self._folder, wanted)
        for name, part in mapping.assign(replay.map, expanded.replayed, functions, replay.table):
            drawn = {
                key: columns.engine(field, part.columns[field.column], part.function, quoted=False)
                for key, field in fields[name].items()
            }
            every = {**self._requests[name]["fields"], **drawn}
            self._send(name, part.function, 0, arrivals=part.arrivals, fields=every)
        self.expected += expanded.requests()
        self.sentences.append(expanded.sentence(replay.table))
        if expanded.retries:
            self.notes.append(
                f"{expanded.retries:,} rows of {replay.table} are further attempts of a request;"
                " they are not replayed"
            )

    def _send(self, function: str, label: str, start_ns: int, **loop: Any) -> None:
        # Streams with the same label would draw the same numbers, and send in lockstep.
        self._used[label] = self._used.get(label, 0) + 1
        if self._used[label] > 1:
            label = f"{label}#{self._used[label]}"
        requests = self._requests[function]
        self.streams.append(
            Stream(function=function, label=label, start_ns=start_ns, **{**requests, **loop})
        )


def _columns(function: Function) -> dict[str, ColumnField]:
    """Select the fields whose values come from recorded rows."""
    return {name: form for name, form in function.fields.items() if isinstance(form, ColumnField)}


def _used_fields(
    fields: Mapping[str, Any], function: Function, body: bytes | Mapping[str, Any]
) -> dict[str, Any]:
    """Select the fields that requests use whose body is not the function's."""
    templates = [*function.addresses(), *function.headers.values(), *function.query.values()]
    if isinstance(body, Mapping) and "template" in body:
        templates.append(body["template"])
    used = set().union(*map(chains.names, templates))
    return {name: form for name, form in fields.items() if name in used}


def _load(workload: Workload, folder: Path, streams: list[Stream], *, dry_run: bool) -> Load:
    stop = workload.stop
    ca_file = workload.tls.ca_file
    connections = workload.connections
    return Load(
        run=workload.name,
        experiment=workload.name,
        platform=PLATFORM,
        streams=streams,
        seed=workload.seed,
        out=Path(),
        connect_timeout_ns=workload.connect_timeout,
        total_timeout_ns=workload.timeout,
        first_byte_timeout_ns=workload.first_byte_timeout,
        max_connections=workload.max_connections,
        connections=connections.pool if isinstance(connections, Pool) else connections,
        ca_file=None if ca_file is None else str(folder / ca_file),
        insecure=workload.tls.insecure,
        stop_rules=StopRules(
            error_budget=None if stop.error_budget is None else float(stop.error_budget),
            lag_p99_ns=stop.lag_p99,
            slowdown=stop.slowdown,
        ),
        rtt_probes=0 if dry_run else workload.rtt_probes,
        dry_run=dry_run,
    )


def _requests(name: str, function: Function, folder: Path, *, dry_run: bool) -> dict[str, Any]:
    """Make the part of a stream that depends on the function: addresses and requests."""
    urls = function.addresses()
    names = [name] if len(urls) == 1 else [f"{name}-{number}" for number in range(len(urls))]
    socket = function.unix_socket
    sign = None
    if function.sign is not None and not dry_run:
        sign = {"aws_sigv4": _credentials(function.sign.aws_sigv4)}
    return {
        "targets": list(zip(names, urls, strict=True)),
        "method": function.method,
        "headers": function.headers,
        "query": function.query,
        "body": None if function.body is None else _body(name, function.body, folder),
        "fields": {
            field: form.model_dump(mode="json")
            for field, form in function.fields.items()
            if not isinstance(form, ColumnField)
        },
        "http_version": function.http,
        "unix_socket": None if socket is None else str(folder / socket),
        "sign": sign,
        "allocated_memory": function.memory,
        "allocated_cpu": function.vcpu,
        "execution": function.execution,
    }


def _body(function: str, body: Body, folder: Path) -> bytes | Mapping[str, Any]:
    if body.text is not None:
        return body.text.encode()
    if body.base64 is not None:
        return base64.b64decode(body.base64)
    if body.template is not None:
        return {"template": body.template}
    if body.random is not None:
        return {"random_bytes": body.random}
    name = body.file if body.file is not None else body.template_file
    assert name is not None, "a body has one of its keys"
    path = folder / name
    try:
        data = path.read_bytes()
        return data if body.file is not None else {"template": data.decode("utf-8")}
    except UnicodeDecodeError as error:
        raise UnciaError(
            f"the body of {function}: {path} is not UTF-8 text (byte {error.start})"
        ) from error
    except OSError as error:
        raise UnciaError(
            f"the body of {function}: {path} cannot be read: {error.strerror or error}"
        ) from error


def _credentials(sign: AwsSigV4) -> dict[str, str]:
    """Look up credentials where every AWS tool does, and add region and service."""
    import boto3
    import botocore.exceptions

    try:
        credentials = boto3.Session(profile_name=sign.profile).get_credentials()
        frozen = None if credentials is None else credentials.get_frozen_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise UnciaError(f"no AWS credentials to sign with: {error}") from error
    if frozen is None or not frozen.access_key or not frozen.secret_key:
        raise UnciaError(
            "there are no AWS credentials to sign with",
            hint="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`.",
        )
    signing = {
        "region": sign.region,
        "service": sign.service,
        "access_key_id": frozen.access_key,
        "secret_access_key": frozen.secret_key,
    }
    if frozen.token:
        signing["session_token"] = frozen.token
    return signing


def _joined(sentences: list[str], limit: int = 4) -> str:
    if len(sentences) > limit:
        return "; ".join([*sentences[:limit], f"and {len(sentences) - limit:,} more streams"])
    return "; ".join(sentences)
