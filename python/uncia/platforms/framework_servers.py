"""Functions behind frameworks that serve them over HTTP on this machine, without a sandbox.

Each framework is a file of `uncia.platforms.frameworks`; its servers are started for each function,
in control groups of their own, on the loopback interface.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from uncia.errors import UnciaError
from uncia.platforms import Capabilities, Context, FunctionSpec, PlatformForm, frameworks
from uncia.platforms.bare import (
    SETTINGS,
    SHIMS,
    BarePlatform,
    Host,
    clean,
    groups_of,
    language,
    variables,
)
from uncia.platforms.frameworks import Framework

__all__ = ["CAPABILITIES", "Options", "ServerPlatform", "clean", "connect"]

# Files of Uncia's that shims call, by language, and what they are called beside the handler.
_HANDLERS: Final = {
    "python": ("python_handler.py", "uncia_handler.py"),
    "node": ("node_handler.cjs", "uncia_handler.cjs"),
}
_ENDINGS: Final = {".js": "commonJsModule", ".cjs": "commonJsModule", ".mjs": "esModule"}

CAPABILITIES: Final = Capabilities(
    deploys=True,
    collects=False,
    settings=SETTINGS,
    languages=lambda options: options.chain()[0].languages,
    groups=groups_of("server"),
)


class Options(PlatformForm):
    """Functions behind a framework's server on this machine."""

    kind: Literal["server"]
    framework: str = Field(description=f"One of: {', '.join(frameworks.names())}")
    before: str | None = Field(
        None, description="Of a framework that stands before another, such as queue-proxy: which"
    )
    concurrency: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="Requests that it serves at a time; of one that serves a single one, servers"
        " that run at once",
    )

    @model_validator(mode="after")
    def _known(self) -> Self:
        known = frameworks.names()
        for name in (self.framework, self.before):
            if name is not None and name not in known:
                raise ValueError(f"{name!r} is no framework: there are {', '.join(known)}")
        first = frameworks.get(self.framework)
        if self.before is not None and first.before is None:
            raise ValueError(f"{self.framework} stands before no other framework")
        if self.before is not None:
            second = frameworks.get(self.before)
            if second.serial or second.isolated or second.path != "/":
                raise ValueError(f"{self.framework} cannot stand before {self.before}")
        if self.concurrency is not None and first.concurrency is None and not first.serial:
            raise ValueError(f"{self.framework} has no bound of requests that it serves at a time")
        return self

    def chain(self) -> list[Framework]:
        """The frameworks, each before the next one in the list."""
        first = frameworks.get(self.framework)
        if first.before is None:
            return [first]
        return [frameworks.get(self.before or first.before), first]


class ServerPlatform(BarePlatform):
    """The functions of one run."""

    KIND = "server"

    def __init__(self, options: Options, context: Context) -> None:
        super().__init__(context)
        self._options = options
        self._chain = options.chain()

    def start(self) -> list[str]:
        for framework in self._chain:
            framework.installed()
        if self._chain[-1].isolated:
            return [
                *super().start(),
                f"{self._options.framework} is in a network namespace: a relay before it adds its"
                " time to each request.",
            ]
        return super().start()

    def check(self, function: FunctionSpec) -> None:
        serving, known = self._chain[0], language(function.runtime)
        if known not in serving.languages:
            served = " and ".join(serving.languages)
            raise UnciaError(f"{function.name}: {serving.name} serves {served}, not {known}")

    def host(self, function: FunctionSpec, folder: Path, timeout_s: float) -> Host:
        first = self._chain[-1]
        handler = function.handler or "handler.handler"
        names = {
            "function": function.name,
            # So that what waits for it gives up first.
            "timeout_s": str(math.ceil(timeout_s) + 1),
            "concurrency": str(self._options.concurrency or _default(first)),
        }
        shim, name = _HANDLERS[language(function.runtime)]
        shutil.copyfile(SHIMS / shim, folder / name)
        given = {
            **variables(function, folder),
            "UNCIA_HANDLER": handler,
            "UNCIA_FUNCTION": function.name,
            "UNCIA_TIMEOUT_S": str(timeout_s),
        }
        servers = []
        for framework in self._chain:
            installed = framework.installed()
            replaced = names | framework.placeholders(installed)
            added = {key: _filled(text, replaced) for key, text in framework.environment.items()}
            if framework.ready is not None:
                added["UNCIA_READY"] = framework.ready
            if (bound := framework.concurrency) is not None and bound.variable is not None:
                chosen = self._options.concurrency if framework is first else None
                added[bound.variable] = str(chosen or bound.default)
            # Once in each file: what the function brings may have any text.
            port = uuid.uuid4().hex
            _lay(framework, function, handler, folder, {**names, "port": port})
            servers.append(
                {
                    "name": framework.name,
                    "command": [_filled(text, replaced) for text in framework.command],
                    "environment": added,
                    "variables": given,
                    "ready": framework.ready,
                    "files": dict.fromkeys(framework.files, port),
                }
            )
        config = {
            "servers": servers,
            "isolated": first.isolated,
            "path": first.path,
            "serial": (self._options.concurrency or 1) if first.serial else 0,
        }
        # Before those that serve one at a time stands a server whose path is this one.
        return Host("server_host.py", config, "/" if first.serial else first.path)


def _default(framework: Framework) -> int:
    return 1 if framework.concurrency is None else framework.concurrency.default


def _filled(text: str, names: Mapping[str, str]) -> str:
    """A text with ``{name}`` replaced for each name, all at once; other braces stay."""
    pattern = "|".join(re.escape(f"{{{name}}}") for name in names)
    return re.sub(pattern, lambda match: names[match[0][1:-1]], text)


def _lay(
    framework: Framework,
    function: FunctionSpec,
    handler: str,
    folder: Path,
    names: Mapping[str, str],
) -> None:
    """Lay a framework's files beside a function.

    Raises:
        UnciaError: the function has a file of that name, or is none for this framework.
    """
    if not framework.files:
        return
    taken = [name for name in framework.files if (folder / name).exists()]
    if taken:
        raise UnciaError(f"{function.name} has a file {taken[0]}, which {framework.name} needs")
    module, _, attribute = handler.rpartition(".")
    replaced = {**names, "attribute": attribute, "ready": framework.ready or ""}
    texts = {
        name: (framework.folder / source).read_text(encoding="utf-8")
        for name, source in framework.files.items()
    }
    if any("{modules}" in text for text in texts.values()):
        replaced |= _modules(framework, function, module, folder)
    for name, text in texts.items():
        (folder / name).write_text(_filled(text, replaced), encoding="utf-8")


def _modules(
    framework: Framework, function: FunctionSpec, module: str, folder: Path
) -> dict[str, str]:
    """What a runtime must be given that reads no files: the modules, and variables."""
    if (folder / "node_modules").is_dir():
        raise UnciaError(
            f"{function.name}: {framework.name} reads no node_modules",
            hint="Bundle the function's packages into its handler.",
        )
    files = [
        path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*"))
        if path.suffix in _ENDINGS and path.name != _HANDLERS["node"][1]
    ]
    entry = [f"{module}{ending}" for ending in _ENDINGS if f"{module}{ending}" in files]
    if not entry:
        raise UnciaError(f"{function.name}: there is no {module}.js in its package")
    main = [name for name in framework.files if Path(name).suffix in _ENDINGS]
    modules = [
        f"(name = {json.dumps(name)}, {_ENDINGS[Path(name).suffix]} = embed {json.dumps(name)})"
        for name in [*main, *files]
    ]
    bindings = [
        f"(name = {json.dumps(name)}, text = {json.dumps(value)})"
        for name, value in function.environment.items()
    ]
    return {
        "module": entry[0],
        "modules": ",\n    ".join(modules),
        "bindings": ",\n    ".join(bindings),
    }


def connect(options: Options, context: Context) -> ServerPlatform:
    """Return the platform of one run; nothing runs before a function is deployed."""
    return ServerPlatform(options, context)
