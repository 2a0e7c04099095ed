"""STeLLAR's experiments (Ustiugov et al., IISWC 2021): the client's JSON.

Each sub-experiment becomes an experiment. STeLLAR visits its endpoints one after another and waits
for each burst's answers, so its interval grows with them; here the times are fixed beforehand. Of P
replicas each is sent a burst every interval, replica k (from 0) k / P of the interval later, which
is what the interval and the round-robin of the paper (section V) mean when answers are quick.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Final

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.units import format_duration
from uncia.workload.importers._stellar_file import (
    Config,
    SubExperiment,
    nanoseconds_of,
    spelled,
)
from uncia.workload.importers.base import Imported, Options, duration, name_of

NAME: Final = "stellar"
DESCRIPTION: Final = "STeLLAR's experiment configurations (JSON)"

_SEED: Final = 1
_DEFAULT_MEMORY_MB: Final = 128
_CHAIN_TIMEOUT: Final = "60s"
# Of functions that hand on up to a gigabyte by the store.
_STORE_TIMEOUT: Final = "5min"
# A zip file of more than 50 MB is uploaded through the store, what is beside the filler included.
_LARGEST_UPLOAD: Final = 40 << 20
# The languages of STeLLAR that functions of the catalogue may have too, by how their names begin.
_LANGUAGES: Final = {
    "python": "python",
    "node": "node",
    "go": "go",
    "java": "java",
    "ruby": "ruby",
}
# The functions of STeLLAR that answer at once, or spin as long as asked, and the runtime
# that each is written in. Others do other work.
_HELLO: Final = {
    "hellopy": "python",
    "hellonode": "node",
    "hellogo": "go",
    "hellojava": "java",
    "helloruby": "ruby",
    "hellorust": "rust",
    "producer-consumer": "go",
}
_COMPUTED: Final = ("ID", "BusySpinIncrements", "Endpoints", "Routes")
# Of older files, which the original no longer reads.
_FORGOTTEN: Final = ("RepurposeIdentifier",)
# What Uncia lacks, by the key that asks for it.
_LACKING: Final = {
    "SnapStartEnabled": "snapshots of started instances (SnapStart)",
    "CPUBoostEnabled": "more CPU during a start (CPU boost)",
}


def recognises(data: dict[str, Any]) -> bool:
    """Return whether a file looks like STeLLAR's."""
    return any(key.lower() == "subexperiments" for key in data)


def convert(document: yamlio.Document, options: Options) -> Imported:
    """Convert a STeLLAR configuration to an experiment file.

    Raises:
        UnciaError: unknown keys, bad values, or what Uncia does not have (file, line, key).
    """
    imported = Imported("experiment", {})
    config = yamlio.validate(Config, spelled(document, imported.warnings))
    _warn_of_the_whole(config, options, imported)
    builder = _Builder(document, config, options, imported)
    for position in range(len(config.SubExperiments)):
        builder.add(position)
    if not builder.experiments:
        raise document.error(("SubExperiments",), "nothing is left that could be carried over")
    imported.data = {
        "name": name_of(f"stellar-{config.SubExperiments[0].Title or 'experiment'}"),
        "description": "STeLLAR's experiment",
        "seed": _SEED,
        "platform": {"kind": options.platform},
        **({"services": builder.services} if builder.services else {}),
        "functions": builder.functions,
        **({"chains": builder.chains} if builder.chains else {}),
        "experiments": builder.experiments,
    }
    return imported


def _warn_of_the_whole(config: Config, options: Options, imported: Imported) -> None:
    if not config.Sequential and len(config.SubExperiments) > 1:
        imported.warnings.append(
            "Sequential is false: the original runs the sub-experiments at the same time, in which"
            " they disturb one another; here they run one after another"
        )
    if "Function" in config.model_fields_set:
        imported.warnings.append(
            "Function: the original reads it in sub-experiments, and ignores it here; left out"
        )
    imported.warnings.append(
        f"Provider {config.Provider!r}: the file is for the platform {options.platform!r}"
        " (--platform)"
    )
    imported.warnings.append(
        "the original waits one interval before the first burst; here it is sent at the start"
    )


class _Builder:
    """Collects functions and experiments."""

    def __init__(
        self, document: yamlio.Document, config: Config, options: Options, imported: Imported
    ) -> None:
        self.document = document
        self.config = config
        self.options = options
        self.imported = imported
        self.functions: dict[str, Any] = {}
        self.chains: dict[str, Any] = {}
        self.services: dict[str, Any] = {}
        self.experiments: dict[str, Any] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def add(self, position: int) -> None:
        """Convert one sub-experiment."""
        sub = self.config.SubExperiments[position]
        key_path: yamlio.KeyPath = ("SubExperiments", position)
        try:
            service = self._service_times(key_path, sub)
            self._check(key_path, sub, service)
            runtime = self._runtime(key_path, sub, service)
        except UnciaError as error:
            if not self.options.skip:
                if len(self.config.SubExperiments) == 1:
                    raise
                hint = "Leave such sub-experiments out with --skip-unsupported."
                raise UnciaError(error.message, hint) from error
            self.imported.warnings.append(f"{error}; the sub-experiment is left out")
            return
        self._warn(key_path, sub, service)
        name = self._name(sub, service[0])
        self.experiments[name] = self._experiment(sub, runtime, service)

    def _name(self, sub: SubExperiment, service_ns: int) -> str:
        """Return the title, with a number if other sub-experiments have the same."""
        title = sub.Title or sub.Function
        if (
            sum((other.Title or other.Function) == title for other in self.config.SubExperiments)
            == 1
        ):
            return name_of(title, self.experiments)
        memory = f"-{sub.FunctionMemoryMB}MB" if sub.FunctionMemoryMB else ""
        size = f"-burst{sub.BurstSizes[0]}"
        time = f"-{sub.DesiredServiceTimes[0]}" if service_ns else ""
        return name_of(f"{title}{memory}{size}{time}", self.experiments)

    def _check(self, key_path: yamlio.KeyPath, sub: SubExperiment, service: Sequence[int]) -> None:
        """Refuse what Uncia does not have, and what the original fails with."""
        refuse = self.document.error
        for key, feature in _LACKING.items():
            if getattr(sub, key):
                raise refuse((*key_path, key), f"Uncia lacks {feature}")
        if sub.has_payload and any(service):
            raise refuse(
                (*key_path, "DesiredServiceTimes"),
                "Uncia lacks a function that hands a payload on and burns CPU time",
            )
        if sub.Bursts == 0:
            raise refuse((*key_path, "Bursts"), "no bursts: nothing would be sent")
        if not sub.BurstSizes:
            raise refuse((*key_path, "BurstSizes"), "the original fails without burst sizes")
        for position, size in enumerate(sub.BurstSizes):
            if size < 1:
                raise refuse(
                    (*key_path, "BurstSizes", position), "a burst has at least one request"
                )
        if sub.IATSeconds < 0:
            raise refuse((*key_path, "IATSeconds"), "an interval is not negative")
        if sub.IATSeconds == 0:
            for key, what, values in (
                ("BurstSizes", "sizes", sub.BurstSizes),
                ("DesiredServiceTimes", "service times", service),
            ):
                if len(set(values[: sub.Bursts])) > 1:
                    raise refuse(
                        (*key_path, key),
                        f"Uncia lacks bursts back to back (IATSeconds 0) of changing {what}",
                    )
            if sub.is_chain and sub.Parallelism > 1:
                raise refuse(
                    (*key_path, "Parallelism"),
                    "Uncia lacks chains back to back (IATSeconds 0) of one replica after another",
                )
        if sub.FunctionImageSizeMB < 0:
            raise refuse((*key_path, "FunctionImageSizeMB"), "a size is not negative")

    def _runtime(self, key_path: yamlio.KeyPath, sub: SubExperiment, service: Sequence[int]) -> str:
        if sub.Function.lower() not in _HELLO:
            raise self.document.error(
                (*key_path, "Function"),
                f"Uncia lacks a function that does what {sub.Function!r} does",
                tuple(_HELLO),
            )
        if self.options.runtime is not None:
            return self.options.runtime
        named = (sub.Runtime or self.config.Runtime or _HELLO[sub.Function.lower()]).lower()
        source = "relay" if sub.has_payload else "spin" if any(service) else "hello"
        from uncia import functions

        languages = functions.load(source).runtime_names
        for beginning, language in _LANGUAGES.items():
            if named.startswith(beginning) and language in languages:
                return language
        self.imported.warnings.append(
            f"SubExperiments[{key_path[1]}].Runtime: Uncia lacks {source} in {named}, and uncia run"
            " refuses the file; --runtime python measures Python instead"
        )
        return named

    def _service_times(self, key_path: yamlio.KeyPath, sub: SubExperiment) -> list[int]:
        """Return times in ns, taken in turn by rounds as the original's documentation says."""
        times = []
        for position, text in enumerate(sub.DesiredServiceTimes):
            try:
                times.append(nanoseconds_of(text))
            except ValueError as error:
                path = (*key_path, "DesiredServiceTimes", position)
                raise self.document.error(path, str(error)) from error
        if not times:
            path = (*key_path, "DesiredServiceTimes")
            raise self.document.error(path, "the original fails without service times")
        return times

    def _warn(self, key_path: yamlio.KeyPath, sub: SubExperiment, service: Sequence[int]) -> None:
        entry = f"SubExperiments[{key_path[1]}]"
        warn = self.imported.warnings.append
        if sub.FunctionMemoryMB:
            warn(
                f"{entry}.FunctionMemoryMB: the original ignores it when it deploys itself; here"
                f" functions get {sub.FunctionMemoryMB} MB"
            )
        if sub.PackageType != "Zip":
            warn(f"{entry}.PackageType: the original ignores it on AWS; here functions are images")
        if sub.PayloadLengthBytes and not sub.is_chain:
            warn(f"{entry}.PayloadLengthBytes: the original uses it within chains alone; left out")
        if sub.StorageTransfer and not sub.has_payload:
            warn(f"{entry}.StorageTransfer: there is no chain with a payload to store; left out")
        if sub.StorageTransfer and sub.has_payload:
            warn(
                f"{entry}.StorageTransfer: the original stores, and never loads; here the next"
                " function loads what was stored"
            )
        given = sub.model_fields_set
        for key in _COMPUTED:
            if key in given:
                warn(f"{entry}.{key}: the original overwrites it; left out")
        for key in _FORGOTTEN:
            if key in given:
                warn(f"{entry}.{key}: the original no longer reads it; left out")
        for key in ("Handler", "PackagePattern", "Visualization"):
            if key in given:
                warn(f"{entry}.{key}: Uncia has its own; left out")
        if sub.IATSeconds == 0:
            warn(
                f"{entry}.IATSeconds: 0 is back to back: each burst is sent when the one before is"
                " answered (a closed loop)"
            )
            return
        if len(set(service)) > 1:
            turns = "taken in turn, round by round, as documented"
            if self._is_random(sub):
                turns = (
                    "documented as taken in turn, but with stochastic intervals each has gaps of"
                    " its own here, and turns are kept on average only (IATType deterministic"
                    " keeps them)"
                )
            warn(f"{entry}.DesiredServiceTimes: {turns}; the original stays at the last")
        fractional = sub.IATSeconds.denominator != 1
        if fractional and sub.IATType != "stochastic":
            whole = int(sub.IATSeconds)
            warn(f"{entry}.IATSeconds: the original cuts it to {whole} s; here it is kept")
        if sub.IATType == "step":
            warn(f"{entry}.IATType step: the original's first step is its last: a fixed interval")
        if sub.IATType == "stochastic" and sub.IATSeconds <= 1:
            warn(
                f"{entry}.IATType stochastic: up to 1 s the original's gaps are constant or"
                " negative; here the interval is fixed"
            )

    def _experiment(
        self, sub: SubExperiment, runtime: str, service: Sequence[int]
    ) -> dict[str, Any]:
        replicas = max(1, sub.Parallelism)
        is_chain = sub.is_chain
        in_turn = (
            replicas > 1
            and not is_chain
            and set(sub.BurstSizes) == {1}
            and not self._is_random(sub)
        )
        description = {"description": f"STeLLAR's {sub.Title}"} if sub.Title else {}
        wait = (
            {"wait": format_duration(service[0] * max(1, sub.DataTransferChainLength))}
            if len(set(service)) == 1 and service[0]
            else {}
        )
        streams: list[dict[str, Any]] = []
        if sub.IATSeconds == 0:
            streams = [self._back_to_back(sub, runtime, service[0], replicas)]
        elif in_turn and len(set(service)) == 1:
            interval = sub.IATSeconds / replicas
            streams = [
                self._stream(
                    sub,
                    self._function(sub, runtime, service[0], replicas),
                    self._bursts(sub, [1], sub.Bursts, interval),
                    service[0],
                )
            ]
        else:
            for replica in range(min(replicas, sub.Bursts)):
                alone = None if replicas == 1 else replica
                streams.extend(self._replica(sub, runtime, service, replicas, alone))
        if len(streams) == 1 and "start" not in streams[0]:
            return {**description, **wait, **streams[0]}
        return {**description, **wait, "mix": streams}

    def _back_to_back(
        self, sub: SubExperiment, runtime: str, service_ns: int, replicas: int
    ) -> dict[str, Any]:
        """Return the stream of bursts of which each waits for the one before."""
        size = sub.BurstSizes[0]
        closed: dict[str, Any] = {"clients": size, "requests": size * sub.Bursts}
        if size > 1:
            closed["together"] = True
            if replicas > 1:
                closed["one_replica"] = True
        function = self._function(sub, runtime, service_ns, replicas)
        return self._stream(sub, function, {"closed": closed}, service_ns)

    def _replica(
        self,
        sub: SubExperiment,
        runtime: str,
        service: Sequence[int],
        replicas: int,
        replica: int | None,
    ) -> Iterator[dict[str, Any]]:
        """Return the streams of one replica, one for each service time."""
        rounds = len(range(replica or 0, sub.Bursts, replicas))
        offset = sub.IATSeconds * (replica or 0) / replicas
        turns = [service[0]] if len(set(service)) == 1 else list(service)
        for turn, time in enumerate(turns):
            bursts = len(range(turn, rounds, len(turns)))
            if not bursts:
                continue
            # Round r has size r mod n; of every len(turns)th round the sizes come in this order.
            cycle = math.lcm(len(sub.BurstSizes), len(turns)) // len(turns)
            sizes = [
                sub.BurstSizes[(turn + k * len(turns)) % len(sub.BurstSizes)] for k in range(cycle)
            ]
            stream = self._stream(
                sub,
                self._function(sub, runtime, time, 1, replica),
                self._bursts(sub, sizes, bursts, sub.IATSeconds, len(turns)),
                time,
            )
            start = offset + turn * sub.IATSeconds
            if start:
                stream["start"] = duration(start)
            yield stream

    def _stream(
        self, sub: SubExperiment, function: str, loop: dict[str, Any], service_ns: int
    ) -> dict[str, Any]:
        """Return a stream; ``loop`` is its ``arrivals`` or ``closed``."""
        parameters = {"parameters": {"cpu": format_duration(service_ns)}} if service_ns else {}
        if sub.is_chain:
            chain = self._chain(function, self._stages(sub, function, parameters))
            return {"chain": chain, "kind": "nested", **loop}
        return {"function": function, **loop, **parameters}

    @staticmethod
    def _stages(sub: SubExperiment, function: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Return the stages of a chain: each like the others, or what hands a payload on."""
        length = sub.DataTransferChainLength
        if not sub.has_payload:
            return {"link": {"function": function, "repeat": length, **parameters}}
        by = "store" if sub.StorageTransfer else "inline"
        made = {"size": f"{sub.PayloadLengthBytes}B", "by": by}
        taken = {"payload": "{{answer.payload}}"}
        passing: dict[str, Any] = {"function": function, "parameters": {**taken, **made}}
        if length > 3:
            passing["repeat"] = length - 2
        return {
            "send": {"function": function, "parameters": made},
            **({"pass": passing} if length > 2 else {}),
            "take": {"function": function, "parameters": {**taken, "size": "0B"}},
        }

    def _chain(self, function: str, stages: dict[str, Any]) -> str:
        """Return the name of a chain of these stages; adds it if it is new."""
        chain = {"stages": stages}
        for name, known in self.chains.items():
            if known == chain:
                return name
        name = name_of(f"{function}-chain", self.chains)
        self.chains[name] = chain
        return name

    @staticmethod
    def _is_random(sub: SubExperiment) -> bool:
        return sub.IATType == "stochastic" and sub.IATSeconds > 1

    def _bursts(
        self,
        sub: SubExperiment,
        sizes: Sequence[int],
        bursts: int,
        interval: Fraction,
        stride: int = 1,
    ) -> dict[str, Any]:
        """Return every ``stride``th burst of the sub-experiment, as arrivals."""
        arrivals: dict[str, Any] = {"kind": "burst", "sizes": list(sizes), "bursts": bursts}
        if bursts == 1:
            return {"arrivals": arrivals}
        if self._is_random(sub):
            # x + Exp(mean ln x), which the original's getSpinTime draws.
            mean = Fraction(math.log(float(interval))).limit_denominator(10**9)
            arrivals["gap"] = {
                "distribution": "exponential",
                "mean": duration(mean * stride),
                "shift": duration(interval * stride),
            }
        else:
            arrivals["interval"] = duration(interval * stride)
        return {"arrivals": arrivals}

    def _function(
        self,
        sub: SubExperiment,
        runtime: str,
        service_ns: int,
        replicas: int,
        replica: int | None = None,
    ) -> str:
        """Return the name of the function that serves a stream; adds it if it is new."""
        memory = sub.FunctionMemoryMB or _DEFAULT_MEMORY_MB
        function: dict[str, Any] = {
            "source": "relay" if sub.has_payload else "spin" if service_ns else "hello",
            "runtime": runtime,
            "memory": f"{memory}MB",
        }
        is_stored = sub.has_payload and sub.StorageTransfer
        if sub.is_chain:
            # A function waits for those after it, which may have to start first.
            function["timeout"] = _STORE_TIMEOUT if is_stored else _CHAIN_TIMEOUT
        if is_stored:
            function["reach"] = ["store"]
            self.services["store"] = {}
        size = round(sub.FunctionImageSizeMB * (1 << 20))
        if size:
            function["filler"] = f"{size}B"
        if sub.PackageType != "Zip":
            function["package"] = "container"
            self.services["registry"] = {}
        elif size > _LARGEST_UPLOAD:
            function["code"] = "fetched"
            self.services["store"] = {}
        if replicas > 1:
            function["replicas"] = replicas
        # Replicas are alike, and yet functions of their own.
        identity = (sub.Function, replica, *map(str, function.values()))
        if identity not in self._names:
            suffix = "" if replica is None else f"-{replica}"
            name = name_of(f"{sub.Function}-{memory}{suffix}", self.functions)
            self._names[identity] = name
            self.functions[name] = function
        return self._names[identity]
