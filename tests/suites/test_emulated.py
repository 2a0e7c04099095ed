"""Applications of an emulation: drawn from distributions or from a trace, the same for a seed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import checks
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.paths import data
from uncia.suites import emulated
from uncia.units import NS_PER_S, parse_duration

FILE = data("experiments") / "serverlessbench" / "azure.yaml"
HOUR_S = 3600


def changed(**emulation: Any) -> yamlio.Document:
    document = yamlio.load(FILE)
    of_file = {**document.data["emulation"], "speed": 1, **emulation}
    return document.with_data({**document.data, "emulation": of_file})


def constant(**values: float) -> dict[str, Any]:
    """Quantiles of applications that are all alike."""
    alike = {"memory": 200, "execution": 50, "invocations": 240, "cv": 1, "functions": 2, **values}
    return {"orders": [0.0, 1.0], **{name: [value, value] for name, value in alike.items()}}


def times_s(stream: dict[str, Any]) -> float:
    return parse_duration(stream["start"]) / NS_PER_S


def test_the_entry_s_applications_are_a_plan() -> None:
    document = emulated.expand(yamlio.load(FILE))
    made = plan(checks.check(document), Sources(document, FILE.parent))
    (experiment,) = made.experiments
    assert 10 <= len(experiment.streams) <= 30
    assert 500 < experiment.expected_requests() < 10_000
    assert emulated.expand(yamlio.load(FILE)).data == document.data
    other = yamlio.load(FILE)
    other = other.with_data({**other.data, "seed": 2})
    assert emulated.expand(other).data != document.data


def test_functions_keep_their_duration_and_memory() -> None:
    quantiles = constant(memory=300, execution=2_000, functions=3)
    document = emulated.expand(changed(quantiles=quantiles, longest="1s", most_memory="1GB"))
    for function in document.data["functions"].values():
        assert function["memory"] == "364MB"
        assert json.loads(function["parameters"]["phases"]) == [
            {"duration": NS_PER_S, "threads": 1, "memory": 300 << 20}
        ]
    assert {len(it["stages"]) for it in document.data["chains"].values()} == {3}


def test_an_hour_begins_within_gaps() -> None:
    """As many applications are invoked early as an hour that begins anywhere has room for."""
    for cv in (0.0, 0.5, 1.0, 4.0):
        # A mean gap of six minutes.
        quantiles = constant(cv=cv, functions=1)
        document = emulated.expand(changed(quantiles=quantiles, applications=1_000))
        streams = document.data["experiments"]["hour"]["mix"]
        starts = np.array([times_s(it) for it in streams])
        # The rest of a gap that a moment falls into is (1 + cv^2) / 2 mean gaps on average.
        early = (starts < 36).mean() * len(streams) / 1_000
        # In a stationary process a tenth of a mean gap has a first invocation with probability
        # below a tenth, and near it where gaps are not clustered.
        assert early <= 0.1 + 3 * np.sqrt(0.09 / 1_000)
        if cv <= 0.5:
            assert abs(early - 0.1) < 4 * np.sqrt(0.09 / 1_000)
    even = emulated.expand(changed(quantiles=constant(cv=0), applications=10))
    (kind,) = {it["arrivals"]["kind"] for it in even.data["experiments"]["hour"]["mix"]}
    assert kind == "constant"


def test_the_mean_rate_is_the_one_that_was_drawn() -> None:
    """Invocations in the hour are the rate times an hour, though gaps vary."""
    quantiles = constant(invocations=24, cv=1.0, functions=1)
    document = emulated.expand(changed(quantiles=quantiles, applications=1_000))
    streams = document.data["experiments"]["hour"]["mix"]
    lengths = [parse_duration(it["arrivals"]["processes"][1]["duration"]) for it in streams]
    # Lognormal gaps of a mean of an hour and CV 1, drawn here.
    rng = np.random.default_rng(1)
    spread = np.log(2)
    total = 0
    for length in lengths:
        at, count = 0.0, 1
        while (at := at + np.exp(-spread / 2 + np.sqrt(spread) * rng.standard_normal())) < (
            length / NS_PER_S / HOUR_S
        ):
            count += 1
        total += count
    assert abs(total - 1_000) < 5 * np.sqrt(1_000)


def test_what_is_not_invoked_is_not_deployed() -> None:
    document = emulated.expand(
        changed(quantiles=constant(invocations=1, functions=1), applications=240)
    )
    count = len(document.data["experiments"]["hour"]["mix"])
    assert len(document.data["functions"]) == count
    # A twenty-fourth on average.
    assert 2 <= count <= 25
    assert f"{count} of 240 applications" in document.data["experiments"]["hour"]["description"]
    with pytest.raises(UnciaError, match="none of 3 applications"):
        emulated.expand(changed(quantiles=constant(invocations=0), applications=3))


def test_speed_divides_all_times() -> None:
    slow = emulated.expand(changed(quantiles=constant())).data
    fast = emulated.expand(changed(quantiles=constant(), speed=10)).data
    pairs = zip(slow["experiments"]["hour"]["mix"], fast["experiments"]["hour"]["mix"], strict=True)
    for before, after in pairs:
        assert times_s(after) == pytest.approx(times_s(before) / 10)
    phases = json.loads(next(iter(fast["functions"].values()))["parameters"]["phases"])
    assert phases[0]["duration"] == 5_000_000


def test_shorter_files_have_the_same_applications() -> None:
    document = changed()
    shorter = document.with_data(emulated.shorten(document, 0.1))
    assert shorter.data["emulation"]["duration"] == "6min"
    whole, part = (emulated.expand(it).data for it in (document, shorter))
    assert part["functions"].items() <= whole["functions"].items()


def write_trace(folder: Path, applications: int) -> Path:
    """Files of a day: application n has n functions of 10 n ms, 100 + n MB, and 2 n a minute."""
    folder.mkdir()
    minutes = [str(minute) for minute in range(1, 1441)]
    counts = [",".join(["HashOwner,HashApp,HashFunction,Trigger", *minutes])]
    durations = [
        "HashOwner,HashApp,HashFunction,Average,Count,Minimum,Maximum,percentile_Average_0,"
        "percentile_Average_1,percentile_Average_25,percentile_Average_50,percentile_Average_75,"
        "percentile_Average_99,percentile_Average_100"
    ]
    points = ("", 1, 5, 25, 50, 75, 95, 99, 100)
    memory = [
        "HashOwner,HashApp,SampleCount,"
        + ",".join(f"AverageAllocatedMb{f'_pct{point}' if point else ''}" for point in points)
    ]
    for app in range(1, applications + 1):
        memory.append(f"o,a{app},9," + ",".join([str(100 + app)] * len(points)))
        for function in range(app):
            counts.append(f"o,a{app},f{function},http," + ",".join(["2"] * 1440))
            durations.append(
                f"o,a{app},f{function}," + ",".join([str(10 * app), "5", *[str(10 * app)] * 9])
            )
    for name, lines in (
        ("invocations_per_function_md.anon.d01.csv", counts),
        ("function_durations_percentiles.anon.d01.csv", durations),
        ("app_memory_percentiles.anon.d01.csv", memory),
    ):
        (folder / name).write_text("\n".join([*lines, ""]))
    return folder


def test_applications_of_a_trace_are_drawn_whole(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "azure", 6)
    document = changed(applications=4, most_functions=3)
    drawn = emulated.expand(document, str(trace)).data
    seen = set()
    for name, chain in drawn["chains"].items():
        functions = [drawn["functions"][it["function"]] for it in chain["stages"].values()]
        (memory,) = {it["memory"] for it in functions}
        app = int(memory.removesuffix("MB")) - 164
        seen.add(app)
        assert len(functions) == min(app, 3)
        for function in functions:
            (phase,) = json.loads(function["parameters"]["phases"])
            assert phase["duration"] == 10 * app * 1_000_000
            assert phase["memory"] == (100 + app) << 20
        stream = next(it for it in drawn["experiments"]["hour"]["mix"] if it["chain"] == name)
        # Two a minute of each function, at even gaps.
        assert stream["arrivals"]["kind"] == "constant"
        assert stream["arrivals"]["rate"] == "120.000000/h"
    assert len(seen) == 4
    assert seen <= {1, 2, 3, 4, 5, 6}
    with pytest.raises(UnciaError, match="6 applications with invocations"):
        emulated.expand(changed(applications=7), str(trace))
    (trace / "app_memory_percentiles.anon.d01.csv").unlink()
    with pytest.raises(UnciaError):
        emulated.expand(document, str(trace))


@pytest.mark.parametrize(
    ("emulation", "message"),
    [
        ({"applications": 0}, "applications"),
        ({"speed": 0}, "speed"),
        ({"quantiles": {**constant(), "cv": [1.0]}}, "cv has an ascending value"),
        ({"quantiles": {**constant(), "orders": [0.5, 0.1]}}, "orders ascend"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_mistakes_are_sentences(emulation: dict[str, Any], message: str) -> None:
    with pytest.raises(UnciaError) as error:
        emulated.expand(changed(**emulation))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("key", "content", "message"),
    [
        ("experiments", {}, "experiments: an emulation is one experiment"),
        ("experiments", None, "experiments: an emulation is one experiment"),
        ("experiments", {"a": {}, "b": {}}, "experiments: an emulation is one experiment"),
        ("experiments", {"hour": []}, "experiments.hour: an experiment is a mapping"),
        ("seed", "abc", "seed: 'abc' is not a whole number from 0"),
        ("seed", -1, "seed: -1 is not a whole number from 0"),
        ("seed", True, "seed: True is not a whole number from 0"),
    ],
)
def test_mistakes_around_an_emulation_are_sentences(key: str, content: Any, message: str) -> None:
    document = yamlio.load(FILE)
    with pytest.raises(UnciaError) as error:
        emulated.expand(document.with_data({**document.data, key: content}))
    line = document.line((key, "hour") if "hour" in message else (key,))
    assert f"{FILE}:{line}: {message}" in str(error.value)
