"""FaaSProfiler's workloads (Shahrad et al., MICRO 2019): WorkloadInvoker's JSON.

Each instance becomes a function and a stream of a workload file. ``Uniform`` is a constant
interval with a random phase, ``Poisson`` exponential gaps, ``interarrivals_list`` the gaps
themselves. Unlike in the original, instances draw from random streams of their own (there, two
Poisson instances of one rate fire in lockstep), and no worker pool stands between the schedule and
the socket.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, Literal

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.forms import Form
from uncia.workload.importers.base import Imported, Number, Options, duration, name_of, rate

NAME: Final = "faasprofiler"
DESCRIPTION: Final = "FaaSProfiler's workload configurations (JSON)"

_DEFAULT_SEED: Final = 1
# Where the original's own set-up puts it; it asks wsk, which is not the file's to say.
_OPENWHISK: Final = "https://localhost"


class Instance(Form):
    """One entry of ``instances``."""

    application: str
    url: str | None = None
    data: Any = None
    distribution: Literal["Uniform", "Poisson"] | None = None
    rate: Number | None = None
    activity_window: list[Number] | None = None
    interarrivals_list: list[Number] | None = None
    param_file: str | None = None
    data_file: str | None = None
    host: Any = None


class Monitoring(Form):
    """``perf_monitoring``."""

    runtime_script: str | None = None
    post_script: str | None = None


class Config(Form):
    """The whole file."""

    test_name: str
    test_duration_in_seconds: Number
    random_seed: int | None = None
    blocking_cli: bool
    endpoint: Literal["local_openwhisk", "generic"] = "local_openwhisk"
    instances: dict[str, Instance]
    perf_monitoring: Monitoring | None = None
    serverless_platform: Any = None


def recognises(data: dict[str, Any]) -> bool:
    """Return whether a file looks like FaaSProfiler's."""
    return "instances" in data and "test_duration_in_seconds" in data


def convert(document: yamlio.Document, options: Options) -> Imported:
    """Convert a FaaSProfiler workload to a workload file.

    Raises:
        UnciaError: unknown keys or bad values (file, line, key), or nothing is sent.
    """
    config = yamlio.validate(Config, document)
    if config.test_duration_in_seconds <= 0:
        raise document.error(("test_duration_in_seconds",), "a test lasts longer than 0 s")
    imported = Imported("workload", {})
    _warn_of_the_whole(config, options, imported)
    functions: dict[str, Any] = {}
    streams: list[dict[str, Any]] = []
    for key, instance in config.instances.items():
        key_path: yamlio.KeyPath = ("instances", key)
        arrivals = _arrivals(document, key_path, config, instance, imported)
        if arrivals is None:
            continue
        name = name_of(key, functions)
        functions[name] = _function(document, key_path, config, instance, options, imported)
        streams.append({"function": name, "arrivals": arrivals})
    if not streams:
        raise document.error(("instances",), "no instance sends anything")
    imported.data = {
        "name": name_of(config.test_name),
        "description": f"FaaSProfiler's workload {config.test_name}",
        "seed": _DEFAULT_SEED if config.random_seed is None else config.random_seed,
        "functions": functions,
        "streams": streams,
    }
    if monitor := _monitor(config):
        imported.data["monitors"] = [monitor]
    if any(function["url"].startswith("https://") for function in functions.values()):
        imported.data["tls"] = {"insecure": True}
        imported.warnings.append("certificates are not checked, as the original does not")
    return imported


def _monitor(config: Config) -> dict[str, Any] | None:
    """The scripts beside the load; they run where a load is kept in a folder."""
    monitoring = config.perf_monitoring
    if monitoring is None or (monitoring.runtime_script or monitoring.post_script) is None:
        return None
    monitor: dict[str, Any] = {"monitor": "command"}
    if monitoring.runtime_script is not None:
        # It is given the test's duration, as the original does.
        seconds = f"{float(config.test_duration_in_seconds):.9f}".rstrip("0").rstrip(".")
        monitor["start"] = [_local(monitoring.runtime_script), seconds]
    if monitoring.post_script is not None:
        monitor["after"] = [_local(monitoring.post_script)]
    return monitor


def _local(script: str) -> str:
    """A script's path; without a slash it would be looked for on PATH."""
    return script if "/" in script else f"./{script}"


def _warn_of_the_whole(config: Config, options: Options, imported: Imported) -> None:
    warn = imported.warnings.append
    if config.random_seed is None:
        warn(
            f"random_seed is missing or null, with which the original fails: {_DEFAULT_SEED} taken"
        )
    elif config.random_seed < 0:
        raise UnciaError("random_seed is negative: the original fails with it, and so does Uncia")
    if config.endpoint == "generic":
        warn("blocking_cli: the original ignores it with generic endpoints; left out")
    else:
        warn("OpenWhisk asks who calls: add an authorization header to the functions")
        if options.openwhisk is None:
            warn(f"the file does not say where OpenWhisk is: {_OPENWHISK} taken (--openwhisk)")
    if "serverless_platform" in config.model_fields_set:
        warn("serverless_platform: the original never reads it; left out")
    monitoring = config.perf_monitoring
    if monitoring is not None and monitoring.post_script is not None:
        warn("perf_monitoring.post_script: run after the end, which the original forgets")


def _function(
    document: yamlio.Document,
    key_path: yamlio.KeyPath,
    config: Config,
    instance: Instance,
    options: Options,
    imported: Imported,
) -> dict[str, Any]:
    entry = f"instances.{key_path[1]}"
    warn = imported.warnings.append
    if "host" in instance.model_fields_set:
        warn(f"{entry}.host: the original never reads it; left out")
    if config.endpoint == "generic":
        if instance.url is None:
            raise document.error(key_path, "an instance of a generic endpoint needs a url")
        if "data" not in instance.model_fields_set:
            raise document.error(
                key_path, "an instance of a generic endpoint needs data, if only null"
            )
        for key in ("param_file", "data_file"):
            if getattr(instance, key) is not None:
                warn(f"{entry}.{key}: the original ignores it with generic endpoints; left out")
        return {
            "url": instance.url,
            "method": "POST",
            "headers": {"content-type": "application/json"},
            "body": {"text": json.dumps(instance.data)},
        }
    for key in ("url", "data"):
        if getattr(instance, key) is not None:
            warn(f"{entry}.{key}: the original ignores it with local_openwhisk; left out")
    base = (options.openwhisk or _OPENWHISK).rstrip("/")
    # Names of actions may have blanks, and those in packages slashes.
    action = urllib.parse.quote(instance.application)
    function: dict[str, Any] = {
        "url": f"{base}/api/v1/namespaces/_/actions/{action}",
        "method": "POST",
        "query": {"blocking": str(config.blocking_cli).lower(), "result": "true"},
    }
    if instance.data_file is not None:
        function["url"] = f"{base}/api/v1/web/guest/default/{action}"
        function["headers"] = {"content-type": "image/jpeg"}
        function["body"] = {"file": instance.data_file}
        if instance.param_file is not None:
            warn(f"{entry}.param_file: the original ignores it beside data_file; left out")
    elif instance.param_file is not None:
        function["headers"] = {"content-type": "application/json"}
        function["body"] = {"file": instance.param_file}
    return function


def _arrivals(
    document: yamlio.Document,
    key_path: yamlio.KeyPath,
    config: Config,
    instance: Instance,
    imported: Imported,
) -> dict[str, Any] | None:
    """Return an instance's arrival process; None if it sends no requests."""
    entry = f"instances.{key_path[1]}"
    if instance.interarrivals_list is not None:
        for key in ("distribution", "rate", "activity_window"):
            if getattr(instance, key) is not None:
                imported.warnings.append(
                    f"{entry}.{key}: the original ignores it beside interarrivals_list; left out"
                )
        path = (*key_path, "interarrivals_list")
        return _gaps(document, path, config, instance.interarrivals_list, imported)
    if instance.distribution is None or instance.rate is None:
        raise document.error(
            key_path, "an instance needs distribution and rate, or interarrivals_list"
        )
    if instance.rate < 0:
        raise document.error((*key_path, "rate"), "a rate is not negative")
    if instance.rate == 0:
        imported.warnings.append(f"{entry}: a rate of 0 sends nothing; left out")
        return None
    process = {
        "kind": "random_phase" if instance.distribution == "Uniform" else "poisson",
        "rate": rate(instance.rate),
        "duration": duration(config.test_duration_in_seconds),
    }
    if instance.activity_window is None:
        return process
    window = _window(
        document, (*key_path, "activity_window"), config, instance.activity_window, imported
    )
    return {"kind": "windows", "process": process, "windows": [window]}


def _gaps(
    document: yamlio.Document,
    key_path: yamlio.KeyPath,
    config: Config,
    gaps: Sequence[Fraction],
    imported: Imported,
) -> dict[str, Any] | None:
    total = Fraction(0)
    sent_gaps: list[str] = []
    for position, gap in enumerate(gaps):
        if gap < 0:
            raise document.error((*key_path, position), "a gap is not negative")
        total += gap
        if total > config.test_duration_in_seconds:
            break
        sent_gaps.append(duration(gap))
    dropped = len(gaps) - len(sent_gaps)
    key = ".".join(map(str, key_path))
    if dropped:
        imported.warnings.append(
            f"{key}: {dropped} of {len(gaps)} requests come after the end of the test, where the"
            " original drops them too"
        )
    if not sent_gaps:
        imported.warnings.append(f"{key}: nothing to send; the instance is left out")
        return None
    return {"kind": "gaps", "gaps": sent_gaps}


def _window(
    document: yamlio.Document,
    key_path: yamlio.KeyPath,
    config: Config,
    window: Sequence[Fraction],
    imported: Imported,
) -> list[str]:
    if len(window) != 2:
        raise document.error(key_path, "a window is [start, end], in seconds")
    start, end = window
    if start < 0 or end <= start:
        raise document.error(key_path, "a window starts at 0 or later, and ends after its start")
    if start >= config.test_duration_in_seconds:
        raise document.error(key_path, "the window starts when the test is over")
    if end > config.test_duration_in_seconds:
        imported.warnings.append(
            f"{'.'.join(map(str, key_path))}: it ends after the test, and is cut at its end"
        )
        end = config.test_duration_in_seconds
    return [duration(start), duration(end)]
