"""Chains that functions or the platform carry on: their stages, what begins them, their machines.

Of the kinds ``nested`` and ``asynchronous`` the first event carries the whole chain, and each
function invokes what comes next (`functions/_shared`, key ``uncia``). Of the kind ``sequence`` the
platform does: the chain is a state machine of the Amazon States Language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from uncia.errors import UnciaError
from uncia.functions.transfers import Payload
from uncia.stats.turns import turns
from uncia.workload import chains
from uncia.yamlio import Document, KeyPath

ANSWER: Final = "uncia:answer"
"""The key of a value in a stage's event that is taken from the answer before it: a list of keys."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class StagePlan:
    """A stage of a chain.

    Attributes:
        name: the stage; the turns of one that is repeated are numbered.
        alias: what the file and the tables call the function.
        deployment: the key of what is invoked.
        event: what it is given, with values of the answer before it (`ANSWER`).
        hands_on: whether it is given the answer before it as it is, and no event.
        repeat: how often it follows on itself.
        next: positions of the stages that follow.
        payload: what it hands on, if it is a function that transfers payloads.
        takes_payload: whether it is given the payload of the answer before it.
    """

    name: str
    alias: str
    deployment: str
    event: Mapping[str, Any]
    hands_on: bool = False
    repeat: int = 1
    next: tuple[int, ...] = ()
    payload: Payload | None = None
    takes_payload: bool = False

    def turns(self) -> list[str]:
        """What the rows call its turns."""
        return turns(self.name, self.repeat)


@dataclass(frozen=True)
class ChainPlan:
    """A chain that is not the client's to carry on.

    Attributes:
        name: in the file.
        kind: ``nested``, ``asynchronous`` or ``sequence``.
        stages: in the order of the file; the first begins the chain.
    """

    name: str
    kind: chains.Kind
    stages: Sequence[StagePlan]

    @property
    def first(self) -> str | None:
        """The stage of the client's rows; None of a sequence, whose rows are of the whole."""
        return None if self.kind == "sequence" else self.stages[0].turns()[0]

    def hops(self) -> int:
        """How many invocations one chain has beside the client's request."""
        total = sum(stage.repeat for stage in self.stages)
        return total if self.kind == "sequence" else total - 1

    def payloads(self, stage: StagePlan) -> list[Payload]:
        """What a stage may be handed: by the stages before it, and by itself if it is repeated."""
        position = self.stages.index(stage)
        givers = [it for it in self.stages if position in it.next]
        if stage.repeat > 1:
            givers.append(stage)
        return [it.payload for it in givers if it.payload and stage.takes_payload]

    def described(self) -> dict[str, Any]:
        """The chain as plain data, for ``run.yaml``.

        ``payload`` of a stage is how many bytes it takes, None if that differs; others have none.
        """
        stages: dict[str, Any] = {}
        for stage in self.stages:
            stages[stage.name] = {
                "function": stage.alias,
                "repeat": stage.repeat,
                "next": [self.stages[position].name for position in stage.next],
            }
            sizes = {payload.size for payload in self.payloads(stage)}
            if sizes:
                stages[stage.name]["payload"] = sizes.pop() if len(sizes) == 1 else None
        return {"name": self.name, "kind": self.kind, "hops": self.hops(), "stages": stages}

    def event(self, functions: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        """What the client sends to begin the chain: the first stage's event, and all stages.

        Args:
            functions: of each deployment, ``function``, its name on the platform, and perhaps
                ``url``, by which it is invoked then.
        """
        first = self.stages[0]
        if self.kind == "sequence":
            return dict(first.event)
        stages = [
            {
                "stage": stage.name,
                **functions[stage.deployment],
                **({"repeat": stage.repeat} if stage.repeat > 1 else {}),
                **({"event": stage.event} if stage.event else {}),
                **({"next": list(stage.next)} if stage.next else {}),
            }
            for stage in self.stages
        ]
        chain = {"kind": self.kind, "stages": stages, "at": 0, "turn": 1}
        return {**first.event, "uncia": {"chain": chain}}

    def definition(self, resource: Callable[[str], str]) -> dict[str, Any]:
        """The state machine of a sequence.

        Args:
            resource: gives the ARN of a deployment's function.

        Raises:
            UnciaError: branches of a fan-out lead into each other.
        """
        return _Machine(self, resource).whole()


class _Machine:
    """Writes a sequence in the Amazon States Language."""

    def __init__(self, chain: ChainPlan, resource: Callable[[str], str]) -> None:
        self._stages = chain.stages
        self._resource = resource
        self._seen: set[int] = set()

    def whole(self) -> dict[str, Any]:
        """The machine, of which every stage is a state."""
        machine = self._machine(0, None)
        if len(self._seen) < len(self._stages):
            self._irregular(min(set(range(len(self._stages))) - self._seen))
        return machine

    def _machine(self, start: int, stop: int | None) -> dict[str, Any]:
        """The states from one stage on, until before another or the end of the chain."""
        states: dict[str, Any] = {}
        position: int | None = start
        last: dict[str, Any] = {}
        while position is not None:
            stage = self._stages[position]
            if position in self._seen:
                self._irregular(position)
            self._seen.add(position)
            for turn in stage.turns():
                if last:
                    last["Next"] = turn
                last = states[turn] = self._task(stage, is_first=position == 0 and not states)
            position = self._follow(stage, stop, states, last)
            if position is not None and len(stage.next) > 1:
                last = states[_fork(stage)]
            elif len(stage.next) > 1:
                return {"StartAt": self._stages[start].turns()[0], "States": states}
        last["End"] = True
        return {"StartAt": self._stages[start].turns()[0], "States": states}

    def _follow(
        self, stage: StagePlan, stop: int | None, states: dict[str, Any], last: dict[str, Any]
    ) -> int | None:
        """The stage that comes next at this level; a fan-out becomes a state."""
        if len(stage.next) < 2:
            return None if not stage.next or stage.next[0] == stop else stage.next[0]
        meeting = self._meeting(stage.next)
        branches = [self._machine(position, meeting) for position in stage.next]
        name = _fork(stage)
        last["Next"] = name
        states[name] = {"Type": "Parallel", "Branches": branches}
        if meeting is None or meeting == stop:
            states[name]["End"] = True
            return None
        return meeting

    def _meeting(self, branches: Sequence[int]) -> int | None:
        """The first stage to which all branches lead."""
        shared = set.intersection(*(self._reach(position) for position in branches))
        return min(shared, default=None)

    def _reach(self, position: int) -> set[int]:
        reached: set[int] = set()
        left = [position]
        while left:
            stage = left.pop()
            if stage not in reached:
                reached.add(stage)
                left += self._stages[stage].next
        return reached

    def _task(self, stage: StagePlan, *, is_first: bool) -> dict[str, Any]:
        task: dict[str, Any] = {"Type": "Task", "Resource": self._resource(stage.deployment)}
        # The first is given the execution's input, which is its event.
        if not is_first and not stage.hands_on:
            task["Parameters"] = _parameters(stage.event)
        return task

    def _irregular(self, position: int) -> NoReturn:
        raise UnciaError(
            f"the stage {self._stages[position].name!r} follows on stages that are no branches of"
            " one fan-out; in a sequence, branches meet in one stage or in none"
        )


def _fork(stage: StagePlan) -> str:
    """The name of the state that is the fan-out after a stage."""
    return f"after {stage.name}"


def _parameters(event: Any) -> Any:
    """An event as the parameters of a state: what is of the answer is a path."""
    if isinstance(event, Mapping):
        result = {}
        for key, value in event.items():
            if isinstance(value, Mapping) and ANSWER in value:
                result[f"{key}.$"] = _path(value[ANSWER])
            else:
                result[key] = _parameters(value)
        return result
    if isinstance(event, list | tuple):
        return [_parameters(item) for item in event]
    return event


def _path(keys: Sequence[str]) -> str:
    steps = []
    for key in keys:
        if _IDENTIFIER.fullmatch(key):
            steps.append(f".{key}")
        elif key.isascii() and key.isdecimal():
            steps.append(f"[{key}]")
        else:
            # Letters beyond ASCII stand as they are, which every reader of paths takes.
            steps.append(f"[{json.dumps(key, ensure_ascii=False)}]")
    return "$" + "".join(steps)


def refuse_in_sequence(value: Any, document: Document, at: KeyPath) -> None:
    """Refuse what a state machine cannot take of the answer before a stage.

    In the Amazon States Language a path is the value of a key; an item of a list is as it stands.

    Args:
        value: a parameter, with values of the answer (`ANSWER`).
        document: the file, for errors that say where.
        at: the parameter in it.

    Raises:
        UnciaError: an item of a list is a value of the answer; with file, line and key.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            refuse_in_sequence(item, document, (*at, key))
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            here = (*at, position)
            if isinstance(item, Mapping) and ANSWER in item:
                raise document.error(
                    here,
                    "a sequence cannot make a value of an answer an item of a list; make it the"
                    " value of a key, or choose another kind of chain",
                )
            refuse_in_sequence(item, document, here)


def with_answers(value: Any, before: Sequence[str], document: Document, at: KeyPath) -> Any:
    """Return a stage's event with references to the answer before it as the functions read them.

    Args:
        value: the event, or a part of it.
        before: the stages that it waits for.
        document: the file, for errors that say where.
        at: the parameter in it.

    Raises:
        UnciaError: a reference is part of a longer text, or to an answer further back.
    """
    if isinstance(value, Mapping):
        return {key: with_answers(item, before, document, at) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_answers(item, before, document, at) for item in value]
    if not isinstance(value, str):
        return value
    references = list(chains.references(value))
    if not references:
        return value.replace("{{{{", "{{")
    reference = references[0]
    if len(references) > 1 or reference.text != value.strip() or reference.form is not None:
        raise document.error(
            at,
            f"{value!r}: only the client makes texts of answers; write nothing but {{{{answer}}}}",
        )
    first, _, rest = reference.name.partition(".")
    keys = rest.split(".") if rest else []
    if first == "answers":
        keys = keys[1:]
        if reference.stage not in before:
            raise document.error(
                at, f"{reference.text}: only the answer before it is handed on", tuple(before)
            )
        if len(before) > 1:
            keys = [str(before.index(str(reference.stage))), *keys]
    return {ANSWER: keys}
