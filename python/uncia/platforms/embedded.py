"""The embedded platform: ``uncia-engine serve``, a small Lambda on this machine.

A run has a platform of its own: started on a free loopback port with a state folder that is deleted
at the end. Functions are managed through the Lambda API that it serves, and its own log of
invocations, spans and instances is fetched as Arrow.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from uncia import profiles, settings
from uncia.cache import cache_folder
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
    TriggerSpec,
    boto,
    processes,
    triggers,
)
from uncia.platforms.inquiries import fetch_rows, fetch_unserved_events, fetch_warnings
from uncia.platforms.journal import Journal, Resource, state_home
from uncia.platforms.lambda_api import (
    IDENTIFIERS,
    MAX_EVENT_BYTES,
    MAX_REQUEST_BYTES,
    SETTINGS,
    LambdaApi,
    mistakes,
)
from uncia.platforms.server import Server
from uncia.platforms.step_functions import DATA_LIMIT, StatesApi
from uncia.profiles import Profile
from uncia.settings import FUNCTION_SETTINGS, PLATFORM_SETTINGS, POLICIES, Setting, form


def state_folder(run: str) -> Path:
    """The state folder of a run's platform."""
    return state_home() / "embedded" / run


def _groups(run: str, prefix: str) -> list[str]:
    """Patterns of the instances' control groups: by the state folder, as the engine names them."""
    del prefix
    digest = hashlib.sha256(os.fsencode(state_folder(run))).hexdigest()
    return [f"/**/uncia-{digest[:_GROUP_DIGITS]}/*"]


# Of the engine's names of a worker's groups.
_GROUP_DIGITS: Final = 16

CAPABILITIES: Final = Capabilities(
    deploys=True,
    collects=True,
    settings=SETTINGS | frozenset(FUNCTION_SETTINGS) | {"root", "package"},
    http_events=True,
    mistakes=mistakes,
    chains=frozenset({"client", "nested", "sequence", "asynchronous"}),
    payload_limits=lambda options: options.payload_limits(),
    triggers=True,
    groups=_groups,
    marks_events=True,
)

# Settings that choose a policy.
_CHOICES_THAT_ARE_SETTINGS: Final = {"binding": "binding", "cpu_sharing": "cpu"}

# What marks a deployment that is a trigger.
_TRIGGER: Final = "trigger"

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
    def _choices_once(self) -> Self:
        for setting, choice in _CHOICES_THAT_ARE_SETTINGS.items():
            policies = {} if self.policies is None else form.given(self.policies, [choice])
            if policies and form.given(self, [setting]):
                raise ValueError(
                    f"{setting} and the policy for {choice} are the same choice; give only one of"
                    " them"
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


def runtimes_cache() -> dict[str, Any]:
    """Return what has a platform link its runtimes instead of copying them, if that can be."""
    try:
        return {"runtimes_cache": str(cache_folder("runtimes"))}
    except UnciaError:
        return {}


def service_config(services: Mapping[str, ServiceEndpoint]) -> dict[str, Any]:
    """Return the services as the engine's configuration has them."""
    return {
        name: {"address": endpoint.address, "environment": dict(endpoint.environment)}
        for name, endpoint in services.items()
    }


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
        self._config: Final = options.engine() | runtimes_cache()
        services = dict(context.services)
        # What the platform itself pulls from: functions do not reach it.
        registry = services.pop("registry", None)
        if registry is not None:
            self._config["registries"] = [registry.address]
        if services:
            self._config["services"] = service_config(services)
        self._options: Final = options
        self._journal: Final[Journal] = context.journal
        self._state: Final = state_folder(context.run)
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
            boto.client(server.address),
            platform="embedded",
            role=boto.ROLE,
            journal=self._journal,
            runtimes={**IDENTIFIERS, "python": f"python3.{sys.version_info.minor}"},
        )
        profile = self._options.profile()
        return [*server.warnings, *(profile.warnings() if profile else [])]

    def _new_warnings(self) -> tuple[str, ...]:
        """Return what the engine warns of and has not warned of before."""
        server = self._running()
        warnings = fetch_warnings(server.address)
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

    def deploy(self, function: FunctionSpec | SequenceSpec | TriggerSpec) -> Deployment:
        if isinstance(function, SequenceSpec):
            return self._states().deploy(function)
        if isinstance(function, TriggerSpec):
            return self._trigger(function)
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

    def is_settled(self) -> bool:
        return triggers.is_settled(self._running().address)

    def unserved_events(self) -> int:
        try:
            return fetch_unserved_events(self._running().address)
        except RunFailedError:
            # Of a platform that has ended meanwhile, how it ended says more.
            self._running()
            raise

    def remove(self, deployment: Deployment) -> None:
        if _TRIGGER in deployment.detail:
            triggers.remove(self._running().address, deployment.name)
        elif StatesApi.has(deployment):
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
            # The state folder records what is left: it stays, and the journal names it.
            return
        self._is_started = False
        for resource in self._journal.outstanding:
            if resource.platform == "embedded" and resource.kind in _IN_STATE:
                # They live in the state folder, which goes now.
                self._journal.removed(resource)
        shutil.rmtree(self._state, ignore_errors=True)
        if not self._state.exists():
            self._journal.removed(self._resource)

    def _trigger(self, trigger: TriggerSpec) -> Deployment:
        """Make a trigger, which lives in the state folder."""
        begins = trigger.begins
        definition: dict[str, Any] = {
            "prefix": trigger.prefix,
            "changes": list(trigger.changes),
            "event": dict(trigger.event),
            **({} if trigger.stage is None else {"stage": trigger.stage}),
        }
        if StatesApi.has(begins):
            definition["machine"] = self._states().endpoint(begins).machine
        else:
            definition["function"] = begins.name
        triggers.put(self._running().address, trigger.name, definition)
        return Deployment(trigger.name, {_TRIGGER: trigger.prefix})

    def _lambda(self) -> LambdaApi:
        self._running()
        assert self._api is not None, "it is there while the server is"
        return self._api

    def _states(self) -> StatesApi:
        address = f"http://{self._running().address}"
        if self._machines is None:
            self._machines = StatesApi(
                boto.client(self._running().address, "stepfunctions"),
                address,
                platform="embedded",
                role=boto.ROLE,
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
        try:
            return fetch_rows(self._running().address, table, after, self._log)
        except RunFailedError:
            # Of a platform that has ended meanwhile, how it ended says more.
            self._running()
            raise


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
