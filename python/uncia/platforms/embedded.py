"""The embedded platform: ``uncia-engine serve``, a small Lambda on this machine.

A run has a platform of its own: started on a free loopback port with a state folder that is deleted
at the end. Functions are managed through the Lambda API that it serves, and its own log of
invocations, spans and instances is fetched as Arrow.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from uncia import engine, profiles, settings
from uncia.errors import RunFailedError, UnciaError
from uncia.platforms import (
    Capabilities,
    Collected,
    Context,
    Deployment,
    FunctionSpec,
    PlatformForm,
    Response,
    SequenceSpec,
    ServiceEndpoint,
    Target,
    processes,
    wire,
)
from uncia.platforms.journal import Journal, Resource, state_home
from uncia.platforms.lambda_api import (
    IDENTIFIERS,
    MAX_EVENT_BYTES,
    MAX_REQUEST_BYTES,
    SETTINGS,
    LambdaApi,
    mistakes,
)
from uncia.platforms.step_functions import DATA_LIMIT, StatesApi
from uncia.profiles import Profile
from uncia.settings import FUNCTION_SETTINGS, PLATFORM_SETTINGS, POLICIES, Setting, form

CAPABILITIES: Final = Capabilities(
    deploys=True,
    collects=True,
    settings=SETTINGS | frozenset(FUNCTION_SETTINGS) | {"root"},
    http_events=True,
    mistakes=mistakes,
    chains=frozenset({"client", "nested", "sequence", "asynchronous"}),
    payload_limits=lambda options: options.payload_limits(),
)

# The engine verifies its sandbox, sweeps what an earlier one left and copies its runtimes before it
# listens, on however busy a machine. One that cannot start ends before.
_START_TIMEOUT_S: Final = 120.0
# Stopping ends every instance; each gets its grace time, then is killed.
_STOP_TIMEOUT_S: Final = 30.0
# Above the longest time limit that a function can have on Lambda, 15 minutes.
_INVOKE_TIMEOUT_S: Final = 960
_FETCH_TIMEOUT_S: Final = 60.0
_LOG_TAIL_CHARACTERS: Final = 2_000
# The folder and its files are the user's own, as the engine's are.
_PRIVATE_FOLDER: Final = 0o700
_PRIVATE_FILE: Final = 0o600
# The API wants an account's role; this platform checks its form and uses none.
_ROLE: Final = "arn:aws:iam::000000000000:role/uncia"
# Kinds of resources that are in the state folder and nowhere else.
_IN_STATE: Final = ("function", "sequence")


if TYPE_CHECKING:
    _DeclaredOptions = PlatformForm
else:
    _DeclaredOptions = form.make(
        "_DeclaredOptions", PlatformForm, PLATFORM_SETTINGS.values(), Setting.default_text
    )


class Options(_DeclaredOptions):
    """How the embedded platform behaves; what is left out is the engine's default."""

    kind: Literal["embedded"]
    like: str | None = Field(
        None,
        description="Serve as a provider does: the name of a profile, or its file. What is given"
        " beside it counts",
    )
    images: list[str] = Field(
        [], description="Folders whose images functions may be; no image is taken from elsewhere"
    )
    policies: form.Policies | None = Field(None, description="Which policy makes which choice")

    @model_validator(mode="after")
    def _binding_once(self) -> Self:
        policies = {} if self.policies is None else form.given(self.policies, ["binding"])
        if policies and form.given(self, ["binding"]):
            raise ValueError(
                "binding and the policy for binding are the same choice; give only one of them"
            )
        return self

    @field_validator("like")
    @classmethod
    def _is_profile(cls, like: str | None) -> str | None:
        try:
            return None if like is None else (profiles.find(like), like)[1]
        except UnciaError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _expressible(self) -> Self:
        for name, value in form.given(self, PLATFORM_SETTINGS).items():
            try:
                PLATFORM_SETTINGS[name].engine_value(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return self

    def payload_limits(self) -> dict[str, int]:
        """The most bytes of an event by kind of chain."""
        given = form.given(self, PLATFORM_SETTINGS).get("data_limit")
        data_limit = DATA_LIMIT if given is None else int(given)
        return {
            "client": MAX_REQUEST_BYTES,
            "nested": MAX_REQUEST_BYTES,
            "asynchronous": MAX_EVENT_BYTES,
            "sequence": data_limit,
        }

    def profile(self) -> Profile | None:
        """The profile of the provider that it is like."""
        return None if self.like is None else profiles.find(self.like)

    def engine(self) -> dict[str, Any]:
        """The configuration of ``uncia-engine serve``."""
        values = form.given(self, PLATFORM_SETTINGS)
        policies = {} if self.policies is None else form.given(self.policies, POLICIES)
        profile = self.profile()
        if profile is not None:
            # A choice that is a setting, too, is the profile's only if it is given in neither way.
            of_profile = profile.setting_values().items()
            values = {name: it for name, it in of_profile if name not in policies} | values
            policies = profile.policy_names() | policies
        config: dict[str, Any] = settings.configuration(values, "platform.")
        if policies:
            config["policies"] = policies
        if self.images:
            config["images"] = [str(Path(folder).absolute()) for folder in self.images]
        # The interpreter that requirements are installed for; not that of a virtual environment,
        # which is only a link with a folder of its own.
        base = str(getattr(sys, "_base_executable", sys.executable))
        config["runtimes"] = {"python": os.path.realpath(base)}
        return config


def service_config(services: Mapping[str, ServiceEndpoint]) -> dict[str, Any]:
    """Return the services as the engine's configuration has them."""
    return {
        name: {"address": endpoint.address, "environment": dict(endpoint.environment)}
        for name, endpoint in services.items()
    }


class Server:
    """A running ``uncia-engine serve``."""

    def __init__(
        self,
        state: Path,
        config: dict[str, Any],
        listen: str = "127.0.0.1:0",
        options: Sequence[str] = (),
        on_start: Callable[[Server], None] | None = None,
    ) -> None:
        """Start the engine on ``state`` and wait until it listens.

        Args:
            state: its state folder, created if missing.
            config: of ``uncia-engine serve``.
            listen: the address to listen on.
            options: more of ``uncia-engine serve``.
            on_start: receives this server once its process runs, before it listens.

        Raises:
            RunFailedError: it does not start; the message ends with its log.
        """
        _make_state_folder(state)
        file = state / "serve.json"
        with open(file, "w", encoding="utf-8", opener=_open_private) as text:
            json.dump(config, text)
        self.log: Final = state / "serve.log"
        with open(self.log, "ab", opener=_open_private) as errors:
            self.process: Final = subprocess.Popen(
                [
                    str(engine.binary()),
                    "serve",
                    "--listen",
                    listen,
                    "--state",
                    str(state),
                    "--config",
                    str(file),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Out of reach of the terminal's Ctrl-C: the run ends it, after collecting.
                start_new_session=True,
            )
        self._is_ready = False
        try:
            if on_start is not None:
                on_start(self)
            ready = self._wait_ready()
        except BaseException:
            self.stop()
            raise
        self._is_ready = True
        self.address: Final[str] = ready["address"]
        self.warnings: Final[list[str]] = list(ready.get("warnings", []))

    def stop(self) -> bool:
        """Ask the engine to end, and wait; kill it if it does not.

        Returns:
            Whether it ended cleanly, that is, removed itself what it had made.
        """
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        # An engine that refuses to start says so by its exit code, and leaves nothing.
        refused = not self._is_ready and self.process.returncode > 0
        return self.process.returncode == 0 or refused

    def _wait_ready(self) -> dict[str, Any]:
        stdout = self.process.stdout
        assert stdout is not None, "stdout is a pipe"
        deadline = time.monotonic() + _START_TIMEOUT_S
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise RunFailedError(
                    f"the embedded platform did not start within {_START_TIMEOUT_S:.0f} s"
                    f"{self._log_tail()}"
                )
            read = os.read(stdout.fileno(), 65_536)
            if not read:
                self.process.wait()
                raise RunFailedError(f"the embedded platform did not start{self._log_tail()}")
            line += read
        ready: dict[str, Any] = json.loads(line)
        return ready

    def _log_tail(self) -> str:
        """The end of the engine's log, its error event first."""
        text = self.log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_CHARACTERS:]
        for line in reversed(text.splitlines()):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and event.get("event") == "error":
                return f": {event.get('message')}"
        return f": {text.strip()}" if text.strip() else ", and said nothing"


def _make_state_folder(folder: Path) -> None:
    """Make a state folder that is closed to others whatever the umask; one that exists stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(_PRIVATE_FOLDER)
    except FileExistsError:
        return
    folder.chmod(_PRIVATE_FOLDER)


def _open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read, whatever the umask was when it was created.

    Raises:
        RunFailedError: it cannot be written, or belongs to another user.
    """
    try:
        descriptor = os.open(path, flags, _PRIVATE_FILE)
        try:
            os.fchmod(descriptor, _PRIVATE_FILE)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise RunFailedError(
            f"{path} cannot be written: {error.strerror}",
            hint="Make it your own file, or choose another state folder.",
        ) from error
    return descriptor


def _copy_layout(layout: Path, to: Path) -> None:
    """Copy a layout, without copying its bytes where both are on one file system."""

    def link(source: str, target: str) -> str:
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
        return target

    shutil.copytree(layout, to, copy_function=link)


class EmbeddedPlatform:
    """One run's embedded platform."""

    def __init__(self, options: Options, context: Context) -> None:
        self._config: Final = options.engine()
        if context.services:
            self._config["services"] = service_config(context.services)
        self._options: Final = options
        self._journal: Final[Journal] = context.journal
        self._state: Final = state_home() / "embedded" / context.run
        # Images of functions, which the engine takes from the run's own folder alone.
        self._images: Final = self._state / "layouts"
        self._config["images"] = [*self._config.get("images", ()), str(self._images)]
        self._resource = Resource("embedded", "engine", str(self._state))
        self._is_started = False
        self._server: Server | None = None
        self._api: LambdaApi | None = None
        self._machines: StatesApi | None = None
        self._log: Final = context.log
        self._invocations_after = 0
        self._spans_after = 0

    def start(self) -> list[str]:
        self._journal.created(self._resource)
        self._is_started = True
        server = Server(self._state, self._config, on_start=self._adopt)
        self._api = LambdaApi(
            client(server.address),
            platform="embedded",
            role=_ROLE,
            journal=self._journal,
            runtimes={**IDENTIFIERS, "python": f"python3.{sys.version_info.minor}"},
        )
        profile = self._options.profile()
        return [*server.warnings, *(profile.warnings() if profile else [])]

    def _new_warnings(self) -> tuple[str, ...]:
        """Return what the engine warns of and has not warned of before."""
        server = self._running()
        try:
            with wire.open_path(server.address, "/uncia/v1/health", _FETCH_TIMEOUT_S) as answer:
                warnings = json.load(answer)["warnings"]
        except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
            raise RunFailedError(
                f"the embedded platform's warnings cannot be fetched: {error}"
            ) from error
        new = tuple(warning for warning in warnings if warning not in server.warnings)
        server.warnings.extend(new)
        return new

    def _adopt(self, server: Server) -> None:
        """Remember an engine that has just been started, and journal its process."""
        self._server = server
        identity = processes.identify(server.process.pid)
        if identity is not None:
            self._resource = Resource("embedded", "engine", str(self._state), identity.detail())
            self._journal.created(self._resource)

    def deploy(self, function: FunctionSpec | SequenceSpec) -> Deployment:
        if isinstance(function, SequenceSpec):
            return self._states().deploy(function)
        if function.image is None:
            return self._lambda().deploy(function)
        shown = self._images / function.name
        try:
            _copy_layout(function.image, shown)
            # The platform has unpacked it, and needs it no more.
            return self._lambda().deploy(replace(function, image=shown))
        except OSError as error:
            raise RunFailedError(
                f"the image {shown} cannot be written: {error.strerror}"
            ) from error
        finally:
            shutil.rmtree(self._images, ignore_errors=True)

    def endpoint(self, deployment: Deployment) -> Target:
        if StatesApi.has(deployment):
            return self._states().endpoint(deployment)
        return self._lambda().endpoint(deployment)

    def invoke(self, deployment: Deployment, event: Any) -> Response:
        return self._lambda().invoke(deployment, event)

    def remove(self, deployment: Deployment) -> None:
        if StatesApi.has(deployment):
            self._states().remove(deployment)
        else:
            self._lambda().remove(deployment)

    def collect(self) -> Collected:
        invocations, self._invocations_after = self._fetch("invocations", self._invocations_after)
        spans, self._spans_after = self._fetch("spans", self._spans_after)
        # What an instance served changes until it ends, so all of them are fetched every time.
        instances, _ = self._fetch("instances", 0)
        return Collected(invocations, spans, instances, self._new_warnings())

    def close(self) -> None:
        # An interruption may come after the engine has begun and before it is known here.
        clean = not self._is_started if self._server is None else self._server.stop()
        self._server = None
        self._api = None
        self._machines = None
        if not clean and not sweep(self._state, self._resource, self._log):
            # The state folder tells what is left: it stays, and the journal names it.
            return
        self._is_started = False
        for resource in self._journal.outstanding:
            if resource.platform == "embedded" and resource.kind in _IN_STATE:
                # They live in the state folder, which goes now.
                self._journal.removed(resource)
        shutil.rmtree(self._state, ignore_errors=True)
        if not self._state.exists():
            self._journal.removed(self._resource)

    def _lambda(self) -> LambdaApi:
        self._running()
        assert self._api is not None, "it is there while the server is"
        return self._api

    def _states(self) -> StatesApi:
        address = f"http://{self._running().address}"
        if self._machines is None:
            self._machines = StatesApi(
                client(self._running().address, "stepfunctions"),
                address,
                platform="embedded",
                role=_ROLE,
                journal=self._journal,
            )
        return self._machines

    def _running(self) -> Server:
        """Return the running server.

        Raises:
            UnciaError: it was not started, or ended by itself.
        """
        if self._server is None:
            raise UnciaError("the embedded platform is not started")
        code = self._server.process.poll()
        if code is not None:
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            raise RunFailedError(f"the embedded platform ended by itself ({cause})")
        return self._server

    def _fetch(self, table: str, after: int) -> tuple[Any, int]:
        """Return the rows of a platform's table after ``after``, and the last row's id."""
        import pyarrow as pa

        pages: list[pa.Table] = []
        has_more = True
        while has_more:
            page, after, has_more = fetch_page(self._running().address, table, after, self._log)
            pages.append(page)
        rows = pages[0] if len(pages) == 1 else pa.concat_tables(pages).unify_dictionaries()
        # An instance that ended between two pages is on both.
        return (_last_of_each(rows, "instance") if table == "instances" else rows), after


def fetch_page(
    address: str,
    table: str,
    after: int | Literal["newest"],
    log: Callable[[str], object],
    limit: int | None = None,
    living: bool = False,
) -> tuple[Any, int, bool]:
    """Return a page of a platform's table, the id of its last row, and whether another follows.

    Args:
        address: where the platform listens.
        table: ``invocations``, ``spans`` or ``instances``.
        after: the id of the row before the page; ``newest``: the newest row's, so that none comes.
        log: is told of rows that are missing because the disk is full.
        limit: the most rows of the page; None: as many as fit.
        living: of ``instances``, the rows of those that live now, all of them, and no others.

    Raises:
        RunFailedError: the platform does not answer.
    """
    import pyarrow as pa

    path = f"/uncia/v1/{table}?after={after}"
    if limit is not None:
        path += f"&limit={limit}"
    if living:
        path += "&living=true"
    try:
        with wire.open_path(address, path, _FETCH_TIMEOUT_S) as answer:
            last = int(answer.headers["x-uncia-last-rowid"])
            has_more = answer.headers.get("x-uncia-more") == "true"
            held_up = answer.headers.get("x-uncia-held-up", "0")
            if held_up != "0":
                log(f"the disk is full: {held_up} rows are missing from the {table}")
            with pa.ipc.open_stream(answer.read()) as reader:
                return reader.read_all(), last, has_more
    except (urllib.error.URLError, TimeoutError, ConnectionError, pa.ArrowInvalid) as error:
        raise RunFailedError(
            f"the embedded platform's {table} cannot be fetched: {error}"
        ) from error


def list_functions(address: str) -> list[dict[str, Any]]:
    """Return the configurations of the functions of a platform, as Lambda's API lists them.

    Raises:
        RunFailedError: the platform does not answer.
    """
    functions: list[dict[str, Any]] = []
    marker: str | None = ""
    while marker is not None:
        query = f"?Marker={urllib.parse.quote(marker)}" if marker else ""
        try:
            path = f"/2015-03-31/functions/{query}"
            with wire.open_path(address, path, _FETCH_TIMEOUT_S) as answer:
                page = json.load(answer)
        except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError) as error:
            raise RunFailedError(
                f"the embedded platform's functions cannot be listed: {error}"
            ) from error
        functions += page["Functions"]
        marker = page.get("NextMarker")
    return functions


def _last_of_each(rows: Any, column: str) -> Any:
    """Keep the last of the rows that share a value in a column, in the order of the rows."""
    indices = {name: index for index, name in enumerate(rows.column(column).to_pylist())}
    return rows if len(indices) == rows.num_rows else rows.take(sorted(indices.values()))


def client(address: str, service: str = "lambda") -> Any:
    """Return a boto3 client of a service for the embedded platform at ``address``.

    It ignores the user's AWS configuration, so that no region, credentials or profile of a real
    account reach a local test. At an address over TLS it shows what the environment has: see
    `wire`.

    Raises:
        UnciaError: the address is over TLS, and there are no credentials to show; or it is a unix
            socket, which boto3 cannot connect to.
    """
    if address.startswith(wire.UNIX):
        raise UnciaError(f"boto3 speaks to no unix socket such as {address}", "Name its address.")
    import boto3.session
    import botocore.session
    from botocore import UNSIGNED
    from botocore.config import Config

    known, pair = (wire.token(), wire.keys()) if address.startswith(wire.HTTPS) else (None, None)
    if address.startswith(wire.HTTPS) and known is None and pair is None:
        raise wire.no_credentials(address)

    nowhere = (None, None, os.devnull, None)
    base = botocore.session.Session(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": nowhere,
            "credentials_file": nowhere,
        }
    )
    key, secret, token = pair or ("uncia", "uncia", None)
    # Typed stubs know a client for each service, and none for its name.
    session: Any = boto3.session.Session(botocore_session=base)
    made = session.client(
        service,
        endpoint_url=wire.url_of(address),
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token,
        region_name=wire.REGION,
        config=Config(
            retries={"total_max_attempts": 1},
            read_timeout=_INVOKE_TIMEOUT_S,
            proxies={},
            # Else StartSyncExecution goes to a host of another name.
            inject_host_prefix=False,
            signature_version=UNSIGNED if known else None,
        ),
    )
    if known is not None:

        def authorize(request: Any, **_: object) -> None:
            request.headers["Authorization"] = f"Bearer {known}"

        made.meta.events.register("before-send", authorize)
    return made


def connect(options: Options, context: Context) -> EmbeddedPlatform:
    """Return the embedded platform of one run, which is not started yet."""
    return EmbeddedPlatform(options, context)


def clean(resources: Sequence[Resource], log: Callable[[str], None]) -> list[Resource]:
    """End the engines of a crashed run, let a new one clean up, and delete their folders."""
    removed: list[Resource] = []
    swept: set[str] = set()
    for resource in resources:
        if resource.kind != "engine":
            continue
        state = Path(resource.id)
        if sweep(state, resource, log):
            removed.append(resource)
            swept.add(state.name)
    # The functions and state machines of a run live in its state folder and are removed with it.
    if len(swept) == sum(1 for resource in resources if resource.kind == "engine"):
        removed.extend(resource for resource in resources if resource.kind in _IN_STATE)
    return removed


def sweep(state: Path, resource: Resource, log: Callable[[str], None]) -> bool:
    """Remove all that the engine on ``state`` left; returns whether that succeeded."""
    identities = set(processes.with_argument(str(state)))
    recorded = processes.named(resource)
    if recorded is not None and processes.alive(recorded):
        identities.add(recorded)
    for identity in identities:
        log(f"ending process {identity.pid} of {state.name}")
        if not processes.end(identity):
            log(f"process {identity.pid} does not end")
            return False
    if not state.exists():
        return True
    # A worker that was killed leaves instances, cgroups and mounts; the next one on the same state
    # folder removes them before it listens.
    try:
        Server(state, {}).stop()
    except UnciaError as error:
        log(error.message)
        return False
    log(f"deleting {state}")
    shutil.rmtree(state, ignore_errors=True)
    return not state.exists()
