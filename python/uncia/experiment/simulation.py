"""The file of ``uncia simulate``: a cluster in virtual time, and what it serves.

``load`` reads it; every error names file, line and key. A billing model decides which settings of a
function count (Cao and others, *Making Serverless Pay-For-Use a Reality with Leopard*, NSDI 2025,
section 5.1.2): ``config`` makes of a file and a model what ``uncia-engine sim`` takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from uncia import yamlio
from uncia.errors import Mistakes
from uncia.forms import Form, Name
from uncia.settings import POLICIES
from uncia.traces import bb
from uncia.units import MICRO_PER_VCPU, Duration, Size, Vcpu
from uncia.workload.arrivals import Arrivals
from uncia.workload.arrivals._gap import Gap
from uncia.workload.hints import Hints

SIMULATED: Final = "simulated"
"""The kind of platform of a simulated run, in its ``run.yaml``."""

Model = Literal["slim", "sim", "spfu", "npfu"]
Sharing = Literal["pinned", "weights", "resv-cpuset"]


class Cluster(Form):
    """Workers that are all alike."""

    workers: int = Field(ge=1, le=10_000, description="How many")
    vcpu: Vcpu = Field(gt=0, description="Cores of each")
    memory: Size = Field(gt=0, description="Memory of each")


class Phase(Form):
    """A stretch of an invocation with the same needs."""

    duration: Duration | None = Field(None, description="On an idle machine; always the same")
    drawn: Gap | None = Field(None, description="A distribution of durations instead")
    vcpu: Vcpu = Field(MICRO_PER_VCPU, ge=0, description="What its threads use; 0 sleeps")
    memory: Size = Field(ge=0, description="Memory held")

    @model_validator(mode="after")
    def _one_duration(self) -> Self:
        if (self.duration is None) == (self.drawn is None):
            raise ValueError("a phase has either a duration or a distribution to draw it from")
        return self

    def engine(self) -> dict[str, Any]:
        """The phase as the engine takes it."""
        if self.drawn is not None:
            duration = self.drawn.engine()
        else:
            duration = {"distribution": "fixed", "ns": self.duration}
        return {"duration": duration, "cpu": self.vcpu, "memory": self.memory}


class Function(Form):
    """A function: what is allocated to it, when it is called and what it does then."""

    vcpu: Vcpu = Field(gt=0, description="The most CPU that an instance may use (cpu-cap)")
    memory: Size = Field(gt=0, description="The most memory (mem-cap)")
    spot_vcpu: Vcpu = Field(0, ge=0, description="What of the CPU is spot, not reserved")
    preemptible: bool = Field(False, description="Whether an instance may be stopped for memory")
    qos: Literal["interactive", "batch"] = Field("interactive", description="What callers await")
    keep_alive: Duration = Field(600 * 10**9, description="How long an idle instance is kept")
    min_instances: int = Field(0, ge=0, le=1_000_000, description="Instances that are kept ready")
    arrivals: Arrivals = Field(description="When it is called")
    phases: list[Phase] = Field(min_length=1, description="What it does, one after the other")

    @model_validator(mode="after")
    def _spot_is_part(self) -> Self:
        if self.spot_vcpu > self.vcpu:
            raise ValueError("spot_vcpu is a part of vcpu, and cannot be more")
        return self


class DrawnTrace(bb.Choices):
    """A BB Trace that each seed draws anew, with its population and its profiles."""

    offered_load: float | None = Field(
        None,
        gt=0,
        le=1_000,
        description="Multiply the counts so that what is asked of the CPUs is this part of what"
        " they can do in the hour",
    )


class TraceOf(Form):
    """Requests from a table of invocations, instead of functions that are called."""

    path: str | None = Field(
        None, min_length=1, description="A run, a table or a trace; from the file's folder"
    )
    bb: DrawnTrace | None = Field(None, description="A BB Trace of the simulation's seed instead")
    experiment: Name | None = Field(None, description="Which of a run that has several")
    window: Duration | None = Field(None, gt=0, description="Only what arrives until then")
    vcpu: Vcpu = Field(
        MICRO_PER_VCPU, gt=0, description="Allocated to functions whose rows do not say"
    )
    memory: Size | None = Field(
        None, gt=0, description="The same; by default the most that was held"
    )
    used_vcpu: Vcpu | None = Field(
        None, ge=0, description="Used by requests whose CPU time was not measured"
    )
    used_memory: Size | None = Field(
        None, ge=0, description="Held by requests whose memory was not measured"
    )
    keep_alive: Duration = Field(600 * 10**9, description="How long an idle instance is kept")
    min_instances: int = Field(0, ge=0, le=1_000_000, description="Instances that are kept ready")
    too_large: Literal["refuse", "clip"] = Field(
        "refuse", description="What becomes of functions that no worker can hold"
    )

    @model_validator(mode="after")
    def _one_table(self) -> Self:
        if (self.path is None) == (self.bb is None):
            raise ValueError("a trace is either the table at a path, or a BB Trace (bb)")
        if self.bb is not None and self.experiment is not None:
            raise ValueError("experiment: a BB Trace has none")
        return self


@dataclass(frozen=True)
class TracedFunction:
    """What is known of a function in a trace: CPU in micro-vCPU, memory in bytes.

    Attributes:
        cpu: what is allocated to it.
        memory: what is allocated to it, and at least what its requests hold.
        spot_cpu: what of the CPU is spot.
        preemptible: whether an instance may be stopped for memory.
        qos: what callers await.
        allocated_memory: what its rows or the file say; 0 if neither does.
        requests: how many there are.
        clipped: those that held more memory than a worker has.
    """

    cpu: int
    memory: int
    spot_cpu: int
    preemptible: bool
    qos: str
    allocated_memory: int = 0
    requests: int = 0
    clipped: int = 0


class SimulatedHints(Hints):
    """What the requests of all functions say of those to come."""

    kind: Literal["none", "perfect", "noisy", "lying"] = Field(  # type: ignore[assignment]
        description="As in experiment files; none: nothing"
    )
    instances: int = Field(10, ge=0, le=2**32 - 1, description="Each function's hint_instances")

    def of_function(self) -> dict[str, Any]:
        """What the engine takes with each function."""
        hints = None if self.kind == "none" else self.engine()
        return {"hints": hints, "hint_instances": self.instances}


class StartsOf(Form):
    """How long starts of instances took in a run."""

    run: str = Field(min_length=1, description="A run's folder; from the file's folder")
    function: str | None = Field(None, description="Only of this function")


class WorkerFailure(Form):
    """A worker is gone for a while, with all that runs there."""

    worker: int = Field(ge=0, description="Its number, from 0")
    at: Duration = Field(ge=0, description="When it goes")
    lasts: Duration = Field(gt=0, description="For how long")


class RandomFailures(Form):
    """Every worker fails now and then; times are exponential."""

    works: Duration = Field(gt=0, description="How long a worker works on average")
    lasts: Duration = Field(gt=0, description="How long it is gone on average")


class Prices(Form):
    """What the paper leaves open of the tariff NPFU."""

    spot: float = Field(0.5, gt=0, le=1, description="C_s / C_r: spot CPU against reserved")
    preemptible: float = Field(0.5, gt=0, le=1, description="M_p / M_r: memory, likewise")


class Parameters(Form):
    """Numbers that policies read; see the reference of policies."""

    locality_weight: int = Field(100, ge=0, le=1_000_000, description="Percent")
    high_load: int = Field(70, ge=0, le=1_000, description="Percent")
    cpu_overcommit: int = Field(200, ge=1, le=1_000_000, description="Percent")
    overtaking_times: int = Field(10, ge=0, le=1_000_000, description="Times its own cost")
    overtaking_max: Duration = Field(60 * 10**9, ge=0, description="At most so long")
    hint_within: Duration = Field(10**9, ge=0, description="How exact hints are that do not say")
    hint_ahead: Duration = Field(24 * 3600 * 10**9, ge=0, description="How far ahead they may be")

    def engine(self) -> dict[str, int]:
        """The parameters as the engine takes them."""
        times = ("overtaking_max", "hint_within", "hint_ahead")
        return {
            **self.model_dump(exclude=set(times)),
            **{f"{name}_ns": getattr(self, name) for name in times},
        }


class SimulationFile(Form):
    """A simulation."""

    name: Name
    description: str = ""
    seed: int = Field(0, ge=0, lt=2**64)
    cluster: Cluster
    functions: dict[Name, Function] | None = Field(
        None, min_length=1, description="What is served, by name"
    )
    trace: TraceOf | None = Field(None, description="Requests from a table instead")
    repeat: int = Field(1, ge=1, le=1_000, description="How often, each time with the next seed")
    models: list[Model] = Field(["npfu"], min_length=1, description="Each is an experiment")
    memory_per_vcpu: Size | None = Field(
        None, gt=0, description="SLIM's ratio; by default that of a worker"
    )
    policies: dict[str, str] = Field(
        default_factory=dict, description="Instead of the model's own, by choice"
    )
    parameters: Parameters = Parameters()
    hints: SimulatedHints | None = Field(
        None, description="What requests say of those to come; by default nothing"
    )
    sharing: Sharing | None = Field(None, description="Instead of the model's own")
    starts: Annotated[list[Duration], Field(min_length=1)] | StartsOf = Field(
        [0], description="How long starts take: each one of these, or of a run's, equally likely"
    )
    latency: Duration = Field(
        0, ge=0, description="From a request's arrival until the policies know of it"
    )
    failures: list[WorkerFailure] | RandomFailures | None = Field(
        None, description="Workers that fail"
    )
    until: Duration | None = Field(
        None, gt=0, description="When it ends; by default once all requests have"
    )
    interval: Duration = Field(10**9, gt=0, description="Between two rows about a worker")
    prices: Prices = Prices()

    @model_validator(mode="after")
    def _each_model_once(self) -> Self:
        if len(set(self.models)) < len(self.models):
            raise ValueError("models: a model is there more than once")
        return self

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.functions is None) == (self.trace is None):
            raise ValueError("a simulation has either functions or a trace")
        if self.seed + self.repeat > 2**64:
            raise ValueError("the last of the repeated seeds is 2^64 or more")
        return self

    def seeds(self) -> range:
        """The seeds with which it is simulated."""
        return range(self.seed, self.seed + self.repeat)

    def ratio(self) -> Fraction:
        """Bytes for each micro-vCPU under SLIM.

        The paper does not print its ratio. That of a worker is the only one by which all CPU and
        all memory of a worker can be reserved.
        """
        if self.memory_per_vcpu is not None:
            return Fraction(self.memory_per_vcpu, MICRO_PER_VCPU)
        return Fraction(self.cluster.memory, self.cluster.vcpu)


@dataclass(frozen=True)
class Rules:
    """What a billing model makes of a function's settings, and how it is served."""

    honours_spot: bool
    fixed_ratio: bool
    policies: Mapping[str, str]
    sharing: Sharing


_RESERVED: Final = {
    "admission": "reservations",
    "order": "shortest-job-first",
    "placement": "least-loaded",
    "eviction": "greedy-dual",
}
_LEOPARD: Final = {
    "admission": "leopard",
    "order": "shortest-job-first",
    "placement": "leopard",
    "eviction": "least-lost-revenue",
}
RULES: Final[dict[Model, Rules]] = {
    "slim": Rules(False, True, _RESERVED, "pinned"),
    "sim": Rules(False, False, _RESERVED, "pinned"),
    "spfu": Rules(False, False, _RESERVED, "pinned"),
    "npfu": Rules(True, False, _LEOPARD, "resv-cpuset"),
}


def load(path: Path, seed: int | None = None) -> tuple[SimulationFile, yamlio.Document]:
    """Read a file.

    Args:
        path: of the file.
        seed: instead of the file's.

    Raises:
        UnciaError: it cannot be read, or is none: with file, line and key.
    """
    document = yamlio.load(path)
    return validate(document, seed), document


def validate(document: yamlio.Document, seed: int | None = None) -> SimulationFile:
    """Check the content of a file, its policies included.

    Args:
        document: the content.
        seed: instead of that in it.

    Raises:
        UnciaError: it is no simulation: with file, line and key.
    """
    if seed is not None and isinstance(document.data, Mapping):
        document = document.with_data({**document.data, "seed": seed})
    file = yamlio.validate(SimulationFile, document)
    mistakes = Mistakes()
    for name, policy in file.policies.items():
        with mistakes.collect():
            choice = POLICIES.get(name)
            if choice is None:
                message = f"no policy makes the choice {name!r}"
                raise document.error(("policies", name), message, tuple(POLICIES))
            if policy not in choice.policies:
                message = f"there is no policy {policy!r}"
                raise document.error(("policies", name), message, choice.policies)
    mistakes.raise_all()
    return file


def experiment(file: SimulationFile, model: Model, seed: int) -> str:
    """The name of the experiment that a model and seed are, in the run."""
    return model if file.repeat == 1 else f"{model}-{seed}"


def config(
    file: SimulationFile,
    model: Model,
    run: str,
    output: Path,
    *,
    seed: int | None = None,
    starts: list[int] | None = None,
    requests: tuple[Path, Mapping[str, TracedFunction]] | None = None,
) -> dict[str, Any]:
    """What ``uncia-engine sim`` takes.

    Args:
        file: what is simulated.
        model: the billing model.
        run: the id of the run, for the rows.
        output: a folder for the tables.
        seed: instead of the file's.
        starts: durations of starts, where the file names a run.
        requests: the engine's file of requests, and their functions, where the file names a trace.
    """
    seed = file.seed if seed is None else seed
    rules = RULES[model]
    cluster = file.cluster
    return {
        "seed": seed,
        "run": run,
        "experiment": experiment(file, model, seed),
        "output": str(output),
        "workers": [{"count": cluster.workers, "cpu": cluster.vcpu, "memory": cluster.memory}],
        "functions": _functions(file, rules, requests),
        "policies": {**rules.policies, **file.policies},
        "parameters": file.parameters.engine(),
        "sharing": file.sharing or rules.sharing,
        "starts_ns": starts if isinstance(file.starts, StartsOf) else file.starts,
        "until_ns": file.until,
        "interval_ns": file.interval,
        "latency_ns": file.latency,
        "requests": None if requests is None else str(requests[0]),
        **_failures(file),
    }


def _failures(file: SimulationFile) -> dict[str, Any]:
    failures = file.failures
    if isinstance(failures, RandomFailures):
        return {"random_failures": {"works_ns": failures.works, "lasts_ns": failures.lasts}}
    listed = [
        {"worker": failure.worker, "at_ns": failure.at, "lasts_ns": failure.lasts}
        for failure in failures or []
    ]
    return {"failures": listed}


def _functions(
    file: SimulationFile,
    rules: Rules,
    requests: tuple[Path, Mapping[str, TracedFunction]] | None,
) -> list[dict[str, Any]]:
    hints = {} if file.hints is None else file.hints.of_function()
    if file.trace is None or requests is None:
        return [
            {
                "name": name,
                **allocation(file, rules, function.vcpu, function.memory, function.spot_vcpu),
                "preemptible": function.preemptible and rules.honours_spot,
                "qos": function.qos,
                "keep_alive_ns": function.keep_alive,
                "min_instances": function.min_instances,
                **hints,
                "arrivals": function.arrivals.engine(),
                "phases": [phase.engine() for phase in function.phases],
            }
            for name, function in (file.functions or {}).items()
        ]
    return [
        {
            "name": name,
            **allocation(file, rules, function.cpu, function.memory, function.spot_cpu),
            "preemptible": function.preemptible and rules.honours_spot,
            "qos": function.qos,
            "keep_alive_ns": file.trace.keep_alive,
            "min_instances": file.trace.min_instances,
            **hints,
        }
        for name, function in requests[1].items()
    ]


def allocation(
    file: SimulationFile, rules: Rules, vcpu: int, memory: int, spot_vcpu: int
) -> dict[str, int]:
    """What is allocated to a function under a model's rules."""
    cpu, size = _rounded(file, rules, vcpu, memory)
    reserved = cpu - min(spot_vcpu if rules.honours_spot else 0, cpu)
    if file.trace is not None and file.trace.too_large == "clip":
        cpu, size = min(cpu, file.cluster.vcpu), min(size, file.cluster.memory)
    # What was reserved stays reserved as far as a worker has it; what is cut off is spot first.
    return {"cpu": cpu, "memory": size, "spot_cpu": cpu - min(reserved, cpu)}


def _rounded(file: SimulationFile, rules: Rules, cpu: int, memory: int) -> tuple[int, int]:
    """CPU and memory of a function, the smaller rounded up where the ratio is fixed."""
    if not rules.fixed_ratio:
        return cpu, memory
    ratio = file.ratio()
    return max(cpu, math.ceil(memory / ratio)), max(memory, math.ceil(cpu * ratio))


def is_cut(file: SimulationFile, model: Model, function: TracedFunction) -> bool:
    """Whether a function of a trace has more CPU or memory under a model than a worker has.

    That its requests held more memory, while nothing says what is allocated, is of those requests.
    """
    rules = RULES[model]
    cpu, _ = _rounded(file, rules, function.cpu, function.memory)
    _, memory = _rounded(file, rules, function.cpu, function.allocated_memory)
    return cpu > file.cluster.vcpu or memory > file.cluster.memory


def clipped(file: SimulationFile, model: Model, functions: Mapping[str, TracedFunction]) -> int:
    """How many requests of a trace have less of a worker than the trace says."""
    if file.trace is None or file.trace.too_large != "clip":
        return 0
    return sum(
        function.requests if is_cut(file, model, function) else function.clipped
        for function in functions.values()
    )
