"""Plans of chains that functions or the platform carry on, and what is refused of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment.deployments import Deployments
from uncia.experiment.model import ExperimentFile, Function
from uncia.experiment.sources import Sources
from uncia.experiment.stages import (
    ANSWER,
    ChainPlan,
    StagePlan,
    refuse_in_sequence,
    with_answers,
)
from uncia.functions.transfers import PARAMETER, USE_STORE, payload_of
from uncia.platforms import adapter
from uncia.settings import PLATFORM_SETTINGS
from uncia.workload import chains
from uncia.workload.loops import Closed

# As long as the name of a deployed function may be.
_LONGEST_NAME: Final = "n" * 64


def in_order_of_branches(name: str, waits: Mapping[str, Sequence[str]]) -> Sequence[str] | None:
    """Return the stages before one in the order in which a fan-out hands on their answers.

    Args:
        name: the stage.
        waits: of each stage of the chain those that it waits for, in the order of the file.

    Returns:
        None: they are not the last ones of a fan-out's branches, one of each.
    """
    before = waits[name]
    if len(before) < 2:
        return before
    followers: dict[str, list[str]] = {stage: [] for stage in waits}
    for later, earlier in waits.items():
        for stage in earlier:
            followers[stage].append(later)
    above = {stage: _above(stage, waits) for stage in before}
    shared = set.intersection(*above.values())
    forks = [stage for stage in waits if stage in shared and len(followers[stage]) > 1]
    if not forks:
        return None
    branches = [
        [stage for stage in before if head in above[stage]] for head in followers[forks[-1]]
    ]
    ordered = [stages[0] for stages in branches if len(stages) == 1]
    return ordered if len(ordered) == len(branches) == len(before) else None


def _above(stage: str, waits: Mapping[str, Sequence[str]]) -> set[str]:
    """A stage and all that it waits for, directly or not."""
    stages: set[str] = set()
    left = [stage]
    while left:
        name = left.pop()
        # Behind a fan-in many ways lead to the same stages: each is followed once.
        if name not in stages:
            stages.add(name)
            left += waits[name]
    return stages


@dataclass(frozen=True)
class ChainBuilder:
    """Turns chains of the file into plans.

    Attributes:
        file: the experiment file.
        sources: finds its functions.
        deployments: collects what the stages need to be deployed.
    """

    file: ExperimentFile
    sources: Sources
    deployments: Deployments

    def plan(self, chain_name: str, kind: chains.Kind) -> ChainPlan:
        """Return the plan of a chain.

        Raises:
            UnciaError: it cannot be carried on so; with file, line and key.
        """
        stages = self.file.chains[chain_name].stages
        waits = chains.predecessors(stages)
        positions = {name: position for position, name in enumerate(stages)}
        plans = [
            self._stage(chain_name, name, kind, waits[name], positions, waits) for name in stages
        ]
        chain = ChainPlan(chain_name, kind, plans)
        at: yamlio.KeyPath = ("chains", chain_name, "stages")
        if kind == "sequence":
            try:
                chain.definition(lambda _key: "")
            except UnciaError as error:
                raise self.sources.document.error(at, error.message) from error
        self._check_room(at, chain)
        self._check_payload(at, chain)
        return chain

    def _stage(
        self,
        chain_name: str,
        name: str,
        kind: chains.Kind,
        after: Sequence[str],
        positions: Mapping[str, int],
        waits: Mapping[str, Sequence[str]],
    ) -> StagePlan:
        """A stage of a chain that the client does not carry on."""
        stage = self.file.chains[chain_name].stages[name]
        at: yamlio.KeyPath = ("chains", chain_name, "stages", name)
        function = self.file.functions[stage.function]
        parameters = {**function.parameters, **stage.parameters}
        document, here = self.sources.document, (*at, "parameters")
        if after:
            before = in_order_of_branches(name, waits)
            if before is None and any(
                reference.stage is not None
                for value in parameters.values()
                for text in chains.texts(value)
                for reference in chains.references(text)
            ):
                raise document.error(
                    at,
                    "its answers are not one of each branch of a fan-out; write only {{answer}}",
                )
            parameters = {
                key: with_answers(value, before or after, document, (*here, key))
                for key, value in parameters.items()
            }
        if kind == "sequence":
            for key, value in parameters.items():
                refuse_in_sequence(value, document, (*here, key))
        filled = {key for key, value in parameters.items() if ANSWER in json.dumps(value)}
        event = self.sources.event(function, parameters, here, templates=filled)
        transfers = self._transfers(function)
        return StagePlan(
            name=name,
            alias=stage.function,
            deployment=self.deployments.add(
                stage.function,
                stage.settings,
                f"{chain_name}-{name}",
                at,
                invokes=kind in ("nested", "asynchronous"),
            ),
            event=event,
            hands_on=bool(after or stage.repeat > 1)
            and not parameters
            and self._takes_any(function),
            repeat=stage.repeat,
            next=tuple(positions[later] for later in waits if name in waits[later]),
            payload=payload_of(event) if transfers else None,
            takes_payload=transfers and PARAMETER in filled,
        )

    def _transfers(self, function: Function) -> bool:
        name = function.declared_by
        return name is not None and self.sources.definition(name).transfers

    def _takes_any(self, function: Function) -> bool:
        """Whether a function may be given whatever another answers."""
        if function.declared_by is None:
            return True
        definition = self.sources.definition(function.declared_by)
        return definition.takes_any_event or not definition.parameters

    def _check_room(self, at: yamlio.KeyPath, chain: ChainPlan) -> None:
        """That a nested chain does not wait for itself: each of its stages keeps an instance busy.

        Raises:
            UnciaError: with file, line and key.
        """
        most = self._most_instances()
        needed = chain.hops() + 1
        if chain.kind == "nested" and most is not None and needed > most:
            raise self.sources.document.error(
                at,
                f"each of its {needed:,} stages waits in an instance for the next, and the platform"
                f" has {most:,} at most (max_instances): the chain would wait for itself",
            )

    def check_clients(self, at: yamlio.KeyPath, loops: Sequence[tuple[ChainPlan, Closed]]) -> None:
        """That nested chains of closed loops have room when all clients wait for their last stage.

        Args:
            at: the experiment in the file.
            loops: the nested chains of one experiment, and their loops.

        Raises:
            UnciaError: with file, line and key.
        """
        most = self._most_instances()
        needed = sum(loop.clients * (chain.hops() + 1) for chain, loop in loops)
        if most is not None and needed > most:
            clients = sum(loop.clients for _, loop in loops)
            raise self.sources.document.error(
                at,
                f"its {clients:,} clients have {needed:,} stages at a time that wait in an instance"
                f" for the next, and the platform has {most:,} at most (max_instances): chains"
                " would be turned away",
            )

    def _most_instances(self) -> int | None:
        """The most instances of the platform; None if nothing is known of it."""
        platform = self.file.platform
        given: int | None = getattr(platform, "max_instances", None)
        if given is not None or platform.kind != "embedded" or getattr(platform, "like", None):
            return given
        default = PLATFORM_SETTINGS["max_instances"].default
        return default if isinstance(default, int) else None

    def _check_payload(self, at: yamlio.KeyPath, chain: ChainPlan) -> None:
        """That what the chain hands on fits through the platform, as far as it is known.

        Raises:
            UnciaError: with file, line and key.
        """
        platform = self.file.platform
        limit = adapter(platform.kind).CAPABILITIES.payload_limits(platform).get(chain.kind)
        if limit is None:
            return
        names = {
            stage.deployment: {"function": _LONGEST_NAME, **self._url(stage.deployment)}
            for stage in chain.stages
        }
        begins = len(json.dumps(chain.event(names)))
        for stage in chain.stages:
            # Of a sequence, each stage is given its own event; else all have the whole chain.
            size = len(json.dumps(stage.event)) + (0 if chain.kind == "sequence" else begins)
            size += max((payload.inline for payload in chain.payloads(stage)), default=0)
            if size > limit:
                raise self.sources.document.error(
                    (*at, stage.name),
                    f"its event has {size:,} bytes, and the platform {platform.kind} takes"
                    f" {limit:,} at most in {chain.kind} chains",
                    hint=USE_STORE,
                )

    def _url(self, key: str) -> dict[str, str]:
        url = self.deployments.plans[key].function.url
        return {} if url is None else {"url": url}
