"""Which invocations are a chain's own, and which a trigger began that its functions had set off."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from uncia.stats.hop_chains import Chain, Row
from uncia.stats.turns import turns

_TURN: Final = re.compile(r"-(?P<turn>[1-9][0-9]{0,17})$")
_BY_TRIGGER: Final = re.compile(r".+:[0-9]+(\.[0-9]+)?$")
"""What the platform calls what a trigger begins itself: the trigger, and the change's position."""


def stage_of(name: str | None, described: Mapping[str, Any]) -> str:
    """The stage of the file that a row's is a turn of."""
    if name is None:
        return "(not known)"
    match = None if name in described["stages"] else _TURN.search(name)
    if match is None:
        return name
    base = name[: match.start()]
    repeat = described["stages"].get(base, {}).get("repeat", 1)
    return base if 1 < repeat >= int(match["turn"]) else name


def is_complete(chain: Chain, described: Mapping[str, Any]) -> bool:
    """Whether the root and a hop of each stage ended ok."""
    # By their stages: functions may invoke others on their own, which are no stages of the chain.
    hops = without_followers(chain, described).hops
    good = {hop["stage"] for hop in hops if hop["outcome"] == "ok"}
    return bool(chain.root["outcome"] == "ok" and expected(described) <= good)


def without_followers(chain: Chain, described: Mapping[str, Any]) -> Chain:
    """The chain without what triggers began when it had changed documents.

    Nobody waits for that, and the client may have had its answer long before.
    """
    left = followers(chain, described)
    if not left:
        return chain
    return replace(chain, hops=[hop for hop in chain.hops if hop["invocation"] not in left])


def followers(chain: Chain, described: Mapping[str, Any]) -> set[str]:
    """The invocations that triggers began when documents had changed, with all behind them.

    By lineage, as stages of other chains may have the same names: an invocation is the chain's own
    if its parents lead to the root, and each has a stage that follows there, or none, as what
    functions invoke on their own.
    """
    rows = {hop["invocation"]: hop for hop in chain.hops}
    is_left = {chain.root["invocation"]: False}
    for name in rows:
        passed: list[str] = []
        at = name
        while at in rows and at not in is_left and len(passed) <= len(rows):
            passed.append(at)
            at = rows[at]["parent"]
        for each in reversed(passed):
            parent = rows[each]["parent"]
            is_left[each] = is_left.get(parent, False) or _is_by_trigger(
                rows[each], rows.get(parent), described
            )
    return {name for name, left in is_left.items() if left}


def behind_triggers(parents: Mapping[str, str | None]) -> set[str]:
    """Of invocations and their parents, what is named as triggers name it, and all behind that."""
    behind = {name: True for name in parents if _BY_TRIGGER.fullmatch(name)}
    for name in parents:
        passed: list[str] = []
        at: str | None = name
        while at is not None and at in parents and at not in behind:
            behind[at] = False
            passed.append(at)
            at = parents[at]
        if at is not None and behind.get(at, False):
            behind.update(dict.fromkeys(passed, True))
    return {name for name, is_behind in behind.items() if is_behind}


def _is_by_trigger(hop: Row, parent: Row | None, described: Mapping[str, Any]) -> bool:
    """Whether a trigger began a hop, whose parent is of the chain itself; of the root it is None.

    What a trigger begins is named by it, but for the states of a sequence: those are known by what
    they follow on.
    """
    if hop["stage"] is None:
        return False
    stages, name = described["stages"], stage_of(hop["stage"], described)
    if name not in stages or _BY_TRIGGER.fullmatch(hop["invocation"]):
        return True
    if hop["started"] is None:
        # Without a platform's log, which alone has triggers, a parent is what functions reported.
        return False
    if described["kind"] == "sequence":
        # All of its states follow on the client's request.
        return parent is not None
    before = next(iter(stages)) if parent is None else stage_of(parent["stage"], described)
    if before not in stages or not any(it.get("next") for it in stages.values()):
        return False
    repeats = name == before and stages[name]["repeat"] > 1
    return not repeats and name not in stages[before].get("next", ())


def expected(described: Mapping[str, Any]) -> set[str]:
    """The turns of a chain's stages that are hops: all, but for the client's own request."""
    expected = [
        turn for name, it in described["stages"].items() for turn in turns(name, it["repeat"])
    ]
    return set(expected if described["kind"] == "sequence" else expected[1:])
