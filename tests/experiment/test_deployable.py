"""What a platform would refuse at deployment, or silently ignore, is said by the plan."""

from pathlib import Path
from typing import Any

import pytest

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import checks, deployable, simulation
from uncia.experiment.plan import Plan
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.functions import java

ARRIVALS = {"kind": "poisson", "rate": "1/s", "duration": "1s"}


def planned(platform: dict[str, Any], function: dict[str, Any], **experiment: Any) -> Plan:
    data = {
        "name": "x",
        "platform": platform,
        "functions": {"f": {"source": "hello", **function}},
        "experiments": {"e": {"function": "f", "arrivals": ARRIVALS, **experiment}},
    }
    document = yamlio.load(yamlio.dump(data), "x.yaml")
    return plan(checks.check(document), Sources(document, Path()))


EMBEDDED = {"kind": "embedded"}
SMALL = {"kind": "embedded", "capacity_memory": "100MB", "capacity_cpu": "0.5vCPU"}


@pytest.mark.parametrize(
    ("platform", "function", "experiment", "why"),
    [
        (
            EMBEDDED,
            {"runtime": "python", "share_state": "classes"},
            {},
            r"functions\.f\.share_state: instances of a function in python share no classes"
            r" \(allowed: none\)",
        ),
        (
            EMBEDDED,
            {"runtime": "node"},
            {"settings": {"share_state": "warm"}},
            r"experiments\.e\.settings\.share_state: .* in node share no warm \(allowed: none, c",
        ),
        (
            EMBEDDED,
            {"runtime": "java", "share_state": "profile", "architecture": "http"},
            {},
            "only functions that poll can",
        ),
        (
            EMBEDDED,
            {"runtime": "ruby", "sandbox": "crun", "start_from": "checkpoint"},
            {},
            r"functions\.f\.start_from: what starts from checkpoint is no container of crun"
            r" \(allowed: fresh, prepared\)",
        ),
        (
            {"kind": "server", "framework": "workerd"},
            {"runtime": "python"},
            {},
            r"functions\.f\.runtime: f is in python, .* \(allowed: node\)",
        ),
        (
            {"kind": "native"},
            {"runtime": "ruby"},
            {},
            r"functions\.f\.runtime: f is in ruby, .* \(allowed: python, node\)",
        ),
        (
            {"kind": "openwhisk"},
            {"runtime": "ruby"},
            {},
            r"functions\.f\.runtime: f is in ruby, which the platform openwhisk does not serve"
            r" \(allowed: python, node\)",
        ),
        (SMALL, {"runtime": "python", "memory": "1GB"}, {}, "1GB is more than .*memory, 100MB"),
        (SMALL, {"runtime": "python"}, {}, r"x\.yaml:\d+: functions\.f\.source: 128MB is more"),
        (
            {"kind": "embedded", "capacity_cpu": "0.5vCPU"},
            {"runtime": "python", "memory": "1769MB"},
            {},
            r"functions\.f\.memory: 1vCPU, which goes with 1769MB, is more than the platform's"
            r" capacity_cpu, 0\.5vCPU",
        ),
        (
            {"kind": "embedded", "capacity_cpu": "0.5vCPU", "memory_per_vcpu": "1GB"},
            {"runtime": "python", "memory": "768MB"},
            {},
            r"functions\.f\.memory: 0\.75vCPU, which goes with 768MB",
        ),
        (
            {"kind": "embedded", "capacity_cpu": "0.5vCPU"},
            {"runtime": "python", "cpu": "0.25vCPU"},
            {"settings": {"cpu": "0.75vCPU"}},
            r"experiments\.e\.settings\.cpu: 0\.75vCPU is more",
        ),
        (
            {"kind": "embedded", "capacity_memory": "256MB"},
            {"runtime": "python", "memory": "128MB"},
            {"sweep": {"memory": ["128MB", "512MB"]}},
            r"experiments\.e\.sweep\.memory: 512MB is more",
        ),
    ],
)
def test_what_cannot_be_deployed_is_refused_with_its_place(
    platform: dict[str, Any], function: dict[str, Any], experiment: dict[str, Any], why: str
) -> None:
    with pytest.raises(UnciaError, match=why) as refusal:
        planned(platform, function, **experiment)
    assert str(refusal.value).startswith("x.yaml:")


def test_what_fits_is_planned() -> None:
    exact = {"kind": "embedded", "capacity_memory": "1769MB", "capacity_cpu": "1vCPU"}
    assert planned(exact, {"runtime": "python", "memory": "1769MB"}).warnings == []
    assert planned(EMBEDDED, {"runtime": "java", "share_state": "profile"}).warnings == []
    half = {"kind": "embedded", "capacity_cpu": "0.5vCPU", "memory_per_vcpu": "4GB"}
    assert planned(half, {"runtime": "python", "memory": "2GB"}).warnings == []


def test_what_containers_do_without_is_a_warning() -> None:
    ruby = {"runtime": "ruby", "sandbox": "crun"}
    [shared] = planned(EMBEDDED, {**ruby, "share_state": "warm"}).warnings
    assert shared == (
        "Instances of f are containers of crun, and there are no checkpoints of such: its"
        " share_state, warm, is ignored."
    )
    [started] = planned(
        {**EMBEDDED, "sandbox": "runc"}, {"runtime": "ruby", "start_from": "checkpoint"}
    ).warnings
    assert started == (
        "Instances of f are containers of runc: they start as prepared, not from checkpoint."
    )
    host = {"runtime": "ruby", "network": "host", "share_state": "warm"}
    assert "Instances of f have the host's network" in planned(EMBEDDED, host).warnings[0]
    assert planned(EMBEDDED, {**ruby, "start_from": "prepared"}).warnings == []
    own = {"runtime": "ruby", "sandbox": "process", "share_state": "warm"}
    assert planned({**EMBEDDED, "sandbox": "runc"}, own).warnings == []


@pytest.mark.parametrize(("version", "is_refused"), [("17.0.15", True), ("25.0.1", False)])
def test_profiles_of_methods_take_a_java_that_has_them(
    monkeypatch: pytest.MonkeyPatch, version: str, is_refused: bool
) -> None:
    monkeypatch.setattr(java, "find", lambda: (Path("/java"), version))
    data = {
        "name": "x",
        "platform": EMBEDDED,
        "functions": {"f": {"source": "hello", "runtime": "java", "share_state": "profile"}},
        "experiments": {"e": {"function": "f", "arrivals": ARRIVALS}},
    }
    document = yamlio.load(yamlio.dump(data), "x.yaml")
    sources = Sources(document, Path())
    whole = plan(checks.check(document), sources)
    if is_refused:
        with pytest.raises(
            UnciaError, match=r"x\.yaml:\d+: functions\.f\.share_state: /java is Java 17\.0\.15"
        ):
            deployable.check_here(whole, sources)
    else:
        deployable.check_here(whole, sources)


def test_hints_that_nobody_reads_are_a_warning() -> None:
    hints = {"kind": "perfect"}
    python = {"runtime": "python"}
    reading = {"kind": "embedded", "policies": {"retention": "hints"}}
    [both] = planned(EMBEDDED, python, hints=hints).warnings
    assert both == (
        "The hints of e to f are ignored: the platform's retention policy is fixed-keep-alive"
        " (write `policies: {retention: hints}` under platform) and the hint_instances of f are 0."
    )
    [none] = planned(reading, python, hints=hints).warnings
    assert none == "The hints of e to f are ignored: the hint_instances of f are 0."
    [policy] = planned(
        {"kind": "embedded", "like": "aws"}, {**python, "hint_instances": 2}, hints=hints
    ).warnings
    assert "the platform's retention policy is uniform" in policy
    assert planned(reading, {**python, "hint_instances": 2}, hints=hints).warnings == []


def test_a_simulations_policies_are_those_there_are(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    text = "name: s\ncluster: {workers: 1, vcpu: 1, memory: 1GB}\ntrace: {path: t}\npolicies:\n"
    file.write_text(f"{text}  order: first\n  orders: backfill\n")
    with pytest.raises(UnciaError) as refusal:
        simulation.load(file)
    first, second = str(refusal.value).splitlines()[-2:]
    assert f"{file}:5: policies.order: there is no policy 'first' (allowed: backfill, " in first
    assert f"{file}:6: policies.orders: no policy makes the choice 'orders'" in second
    file.write_text(f"{text}  order: backfill\n")
    assert simulation.load(file)[0].policies == {"order": "backfill"}
