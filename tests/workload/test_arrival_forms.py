"""The forms of arrival processes: what is written, what the engine gets, what mistakes are told."""

import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from uncia import units, yamlio
from uncia.errors import UnciaError
from uncia.experiment import model
from uncia.forms import Form
from uncia.units import NS_PER_S
from uncia.workload.arrivals import ArrivalProcess, Arrivals, kinds

S = NS_PER_S


class Holder(Form):
    arrivals: Arrivals


def read(text: str) -> ArrivalProcess:
    document = yamlio.load(f"arrivals:\n  {text}\n", "w.yaml")
    return yamlio.validate(Holder, document).arrivals


def error_message(text: str) -> str:
    with pytest.raises(UnciaError) as caught:
        read(text)
    return caught.value.message


# A process as it is written; what the engine gets; how many requests; how long.
FORMS: list[tuple[str, dict[str, Any], int, int]] = [
    (
        "{kind: constant, rate: 100/s, duration: 10s}",
        {"kind": "constant", "rate_per_s": "100", "duration_ns": 10 * S},
        1_000,
        10 * S,
    ),
    (
        "{kind: random_phase, rate: 6/min, duration: 25s}",
        {"kind": "random_phase", "rate_per_s": "0.1", "duration_ns": 25 * S},
        2,
        25 * S,
    ),
    (
        "{kind: poisson, rate: 1/h, duration: 10h}",
        {"kind": "poisson", "rate_per_s": "1/3600", "duration_ns": 36_000 * S},
        10,
        36_000 * S,
    ),
    (
        "{kind: gamma, rate: 10/s, cv: 2, duration: 10s}",
        {"kind": "gamma", "rate_per_s": "10", "cv": 2.0, "duration_ns": 10 * S},
        100,
        10 * S,
    ),
    (
        "{kind: weibull, rate: 10/s, cv: 0.5, duration: 10s}",
        {"kind": "weibull", "rate_per_s": "10", "cv": 0.5, "duration_ns": 10 * S},
        100,
        10 * S,
    ),
    (
        "{kind: lognormal, rate: 10/s, cv: 3.5, duration: 10s}",
        {"kind": "lognormal", "rate_per_s": "10", "cv": 3.5, "duration_ns": 10 * S},
        100,
        10 * S,
    ),
    (
        "{kind: uniform, min_gap: 10ms, max_gap: 30ms, duration: 2s}",
        {
            "kind": "uniform",
            "min_gap_ns": 10_000_000,
            "max_gap_ns": 30_000_000,
            "duration_ns": 2 * S,
        },
        100,
        2 * S,
    ),
    (
        "{kind: burst, sizes: [1, 10], interval: 2s, bursts: 3}",
        {"kind": "burst", "sizes": [1, 10], "interval_ns": 2 * S, "bursts": 3, "jitter_ns": 0},
        12,
        4 * S,
    ),
    (
        "{kind: burst, sizes: [5], bursts: 3, jitter: 100ms,"
        " gap: {distribution: exponential, mean: 1s, shift: 2s}}",
        {
            "kind": "burst",
            "sizes": [5],
            "gap": {"distribution": "exponential", "mean_ns": S, "shift_ns": 2 * S},
            "bursts": 3,
            "jitter_ns": 100_000_000,
        },
        15,
        6 * S + 100_000_000,
    ),
    (
        "{kind: burst, sizes: [5], bursts: 2, gap: {distribution: uniform, min: 1s, max: 3s}}",
        {
            "kind": "burst",
            "sizes": [5],
            "gap": {"distribution": "uniform", "min_ns": S, "max_ns": 3 * S},
            "bursts": 2,
            "jitter_ns": 0,
        },
        10,
        2 * S,
    ),
    (
        "{kind: burst, sizes: [5], bursts: 2, gap: {distribution: weibull, mean: 1s, cv: 2}}",
        {
            "kind": "burst",
            "sizes": [5],
            "gap": {"distribution": "weibull", "mean_ns": S, "cv": 2.0},
            "bursts": 2,
            "jitter_ns": 0,
        },
        10,
        S,
    ),
    (
        "{kind: burst, sizes: [5], bursts: 2, gap: {distribution: fixed, interval: 1s}}",
        {
            "kind": "burst",
            "sizes": [5],
            "gap": {"distribution": "fixed", "ns": S},
            "bursts": 2,
            "jitter_ns": 0,
        },
        10,
        S,
    ),
    (
        "{kind: on_off, on_rate: 100/s, mean_on: 1s, mean_off: 3s, duration: 40s}",
        {
            "kind": "on_off",
            "on_rate_per_s": "100",
            "off_rate_per_s": "0",
            "mean_on_ns": S,
            "mean_off_ns": 3 * S,
            "duration_ns": 40 * S,
            "start": "stationary",
        },
        1_000,
        40 * S,
    ),
    (
        "{kind: ramp, from: 0/s, to: 100/s, duration: 10s}",
        {
            "kind": "ramp",
            "from_per_s": "0",
            "to_per_s": "100",
            "duration_ns": 10 * S,
            "placement": "even",
        },
        500,
        10 * S,
    ),
    (
        "{kind: steps, steps: [{rate: 10/s, duration: 1s}, {rate: 0/s, duration: 5s},"
        " {rate: 20/s, duration: 2s}], placement: poisson}",
        {
            "kind": "steps",
            "steps": [
                {"rate_per_s": "10", "duration_ns": S},
                {"rate_per_s": "0", "duration_ns": 5 * S},
                {"rate_per_s": "20", "duration_ns": 2 * S},
            ],
            "placement": "poisson",
        },
        50,
        8 * S,
    ),
    (
        "{kind: sine, mean: 10/s, amplitude: 10/s, period: 4s, phase: 0.25, duration: 8s}",
        {
            "kind": "sine",
            "mean_per_s": "10",
            "amplitude_per_s": "10",
            "period_ns": 4 * S,
            "phase": 0.25,
            "duration_ns": 8 * S,
            "placement": "even",
        },
        80,
        8 * S,
    ),
    (
        "{kind: times, times: [0s, 1500ms, 1500ms]}",
        {"kind": "times", "times_ns": [0, 1_500_000_000, 1_500_000_000]},
        3,
        1_500_000_000,
    ),
    (
        "{kind: gaps, gaps: [1s, 0s, 500ms]}",
        {"kind": "gaps", "gaps_ns": [S, 0, 500_000_000]},
        3,
        1_500_000_000,
    ),
    (
        "{kind: counts, counts: [3, 0, 7], bucket: 1min, placement: equidistant}",
        {
            "kind": "counts",
            "counts": [3, 0, 7],
            "bucket_ns": 60 * S,
            "placement": "equidistant",
            "phase": True,
        },
        10,
        180 * S,
    ),
    (
        "{kind: superposition, processes: [{kind: times, times: [1s]},"
        " {kind: constant, rate: 2/s, duration: 2s}]}",
        {
            "kind": "superposition",
            "processes": [
                {"kind": "times", "times_ns": [S]},
                {"kind": "constant", "rate_per_s": "2", "duration_ns": 2 * S},
            ],
        },
        5,
        2 * S,
    ),
    (
        "{kind: windows, windows: [[1s, 2s], [2s, 3500ms]],"
        " process: {kind: constant, rate: 10/s, duration: 3s}}",
        {
            "kind": "windows",
            "process": {"kind": "constant", "rate_per_s": "10", "duration_ns": 3 * S},
            "windows_ns": [[S, 2 * S], [2 * S, 3_500_000_000]],
        },
        20,
        3 * S,
    ),
]


@pytest.mark.parametrize(("text", "engine", "requests", "span"), FORMS)
def test_a_form_is_written_for_the_engine(
    text: str, engine: dict[str, Any], requests: int, span: int
) -> None:
    process = read(text)
    assert process.engine() == engine
    assert process.expected_requests() == requests
    assert process.span_ns() == span
    assert process.sentence()


@pytest.mark.parametrize("text", [form[0] for form in FORMS])
def test_a_form_that_is_written_out_reads_back_as_the_same(text: str) -> None:
    process = read(text)
    written = yaml.safe_dump(Holder(arrivals=process).model_dump(mode="json", exclude_none=True))
    assert yamlio.validate(Holder, yamlio.load(written)).arrivals == process


def test_every_kind_is_tried_here() -> None:
    assert {form[1]["kind"] for form in FORMS} == set(kinds())


@pytest.mark.parametrize("text", [form[0] for form in FORMS])
def test_expected_requests_add_up_over_time(text: str) -> None:
    process = read(text)
    result = [process.expected_before(process.span_ns() * step // 16) for step in range(17)]
    assert result[0] == 0
    assert result == sorted(result)
    assert process.expected_before(process.span_ns() + 1) == pytest.approx(
        process.expected_requests(), abs=0.5
    )


def test_the_start_of_an_on_off_process_counts() -> None:
    text = "{kind: on_off, on_rate: 1000/s, mean_on: 1s, mean_off: 1s, duration: 100ms, start: %s}"
    expected = [read(text % start).expected_requests() for start in ("off", "stationary", "on")]
    # Integrals of (1 -+ exp(-2t)) / 2 over a tenth of a second.
    assert expected == [5, 50, 95]


def test_a_burst_is_expected_part_by_part_of_its_jitter() -> None:
    process = read("{kind: burst, sizes: [4, 8], bursts: 2, interval: 10s, jitter: 4s}")
    assert [process.expected_before(t * S) for t in (0, 1, 4, 10, 11, 14)] == [0, 1, 4, 4, 6, 12]


def test_sentences_are_for_people() -> None:
    assert read(FORMS[4][0]).sentence() == "Weibull-distributed gaps (CV 0.5) at 10/s for 10s"
    assert read(FORMS[8][0]).sentence() == (
        "3 bursts of 5 at gaps exponential of mean 1s after 2s, each over 100ms"
    )
    assert read(FORMS[13][0]).sentence() == "from 0/s to 100/s over 10s"
    assert read(FORMS[20 - 1][0]).sentence() == (
        "(at 1 given times within 1s) and (evenly at 2/s for 2s)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{kind: times, times: []}", "w.yaml:2: arrivals.times: needs at least 1, not 0"),
        (
            "{kind: times, times: [1s, 3s, 2s]}",
            "arrivals.times: times[2] (2s) is before times[1] (3s): write them in order",
        ),
        ("{kind: times, times: [1s, 2]}", "w.yaml:2: arrivals.times[1]: 2 has no unit"),
        # The kind and its key have the same name, which must not confuse the place.
        (
            "{kind: times, times: [1s], tims: 3}",
            "w.yaml:2: arrivals.tims: unknown key, did you mean times? (allowed: kind, times)",
        ),
        ("{kind: gaps, gaps: [-1s]}", "arrivals.gaps[0]: '-1s' is not a duration: it is negative"),
        (
            "{kind: poisson, rate: 1/s, duration: -5s}",
            "w.yaml:2: arrivals.duration: '-5s' is not a duration: it is negative",
        ),
        (
            "{kind: poisson, rate: 1/s, duration: 0s}",
            "arrivals.duration: must be more than 0, not 0s",
        ),
        ("{kind: poisson, rate: nan/s, duration: 1s}", "arrivals.rate: 'nan/s' is not a rate"),
        ("{kind: poisson, rate: .nan, duration: 1s}", "arrivals.rate: nan has no unit"),
        ("{kind: poisson, rate: -1/s, duration: 1s}", "'-1/s' is not a rate: it is negative"),
        ("{kind: poisson, rate: 0/s, duration: 1s}", "'0/s' is no rate: it must be above zero"),
        (
            # `even` is a placement of ramps: the keys told are those of poisson all the same.
            "{kind: poisson, rate: 1/s, duration: 1s, placement: even}",
            "arrivals.placement: unknown key (allowed: kind, rate, duration)",
        ),
        (
            "{kind: gamma, rate: 1/s, duration: 1s, cv: .nan}",
            "w.yaml:2: arrivals.cv: must be a finite number, not nan",
        ),
        (
            "{kind: weibull, rate: 1/s, duration: 1s, cv: .inf}",
            "w.yaml:2: arrivals.cv: must be a finite number, not inf",
        ),
        ("{kind: lognormal, rate: 1/s, duration: 1s, cv: 0}", "cv: must be greater than or equal"),
        (
            "{kind: uniform, min_gap: 2s, max_gap: 1s, duration: 9s}",
            "arrivals.max_gap: the greatest gap (1s) is less than the least (2s)",
        ),
        (
            "{kind: ramp, form: 1/s, to: 2/s, duration: 1s}",
            "arrivals.form: unknown key, did you mean from?",
        ),
        ("{kind: ramp, to: 2/s, duration: 1s}", "arrivals.from: the key from is missing"),
        ("{kind: ramp, from: 1, to: 2/s, duration: 1s}", "arrivals.from: 1 has no unit"),
        ("{kind: ramp, from: 0/s, to: 0/s, duration: 1s}", "a ramp from 0/s to 0/s sends nothing"),
        ("{kind: steps, steps: [{rate: 0/s, duration: 1s}]}", "arrivals.steps: steps that are all"),
        (
            "{kind: steps, steps: [{rate: 1/s, duration: 1s}, {rate: 1/s, duratoin: 1s}]}",
            "arrivals.steps[1].duratoin: unknown key, did you mean duration?",
        ),
        (
            "{kind: sine, mean: 1/s, amplitude: 90/min, period: 1s, duration: 1s}",
            "arrivals.amplitude: an amplitude of 1.5/s about a mean of 1/s makes the rate negative",
        ),
        (
            "{kind: sine, mean: 1/s, amplitude: 1/s, period: 1s, duration: 1s, phase: 1}",
            "arrivals.phase: must be less than 1",
        ),
        ("{kind: counts, counts: [1, -1], bucket: 1s}", "arrivals.counts[1]: must be greater than"),
        ("{kind: counts, counts: [0, 0], bucket: 1s}", "arrivals.counts: counts that are all 0"),
        ("{kind: counts, counts: [1, 1.5], bucket: 1s}", "arrivals.counts[1]: must be a valid int"),
        (
            "{kind: counts, counts: [1], bucket: 1s, placement: poisson}",
            "'poisson' is not known (allowed: equidistant, uniform, exponential)",
        ),
        (
            "{kind: burst, sizes: [1], bursts: 2, interval: 1s,"
            " gap: {distribution: uniform, max: 2s}}",
            "bursts have an interval or a gap between them, not both",
        ),
        (
            "{kind: burst, sizes: [1], gap: {distribution: gama, mean: 1s}}",
            "arrivals.gap.distribution: 'gama' is not known, did you mean gamma?",
        ),
        (
            "{kind: burst, sizes: [1], gap: {distribution: uniform, min: 2s, max: 1s}}",
            "arrivals.gap.max: the greatest gap (1s) is less than the least (2s)",
        ),
        (
            "{kind: on_off, on_rate: 1/s, mean_on: 1s, mean_off: 1s, duration: 1s, start: of}",
            "arrivals.start: 'of' is not known, did you mean off? (allowed: on, off, stationary)",
        ),
        ("{kind: superposition, processes: []}", "arrivals.processes: needs at least 1, not 0"),
        (
            "{kind: superposition, processes: [{kind: times, times: [1s]}, {kind: posson}]}",
            "w.yaml:2: arrivals.processes[1].kind: 'posson' is not known, did you mean poisson?",
        ),
        (
            "{kind: windows, windows: [[1s, 2s]], process: {kind: superposition, processes:\n"
            "      [{kind: constant, duration: 1s,\n"
            "        rat: 1/s}]}}",
            "w.yaml:4: arrivals.process.processes[0].rat: unknown key, did you mean rate?",
        ),
        (
            "{kind: windows, windows: [[0s, 3s], [2s, 5s]], process: {kind: gaps, gaps: [1s]}}",
            "windows[1] (2s to 5s) begins before windows[0] ends (3s)",
        ),
        (
            "{kind: windows, windows: [[3s, 3s]], process: {kind: gaps, gaps: [1s]}}",
            "arrivals.windows[0]: the window 3s to 3s is empty",
        ),
        (
            "{kind: windows, windows: [[3s]], process: {kind: gaps, gaps: [1s]}}",
            "arrivals.windows[0]: a window is written [from, to]",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(text: str, message: str) -> None:
    assert message in error_message(text)


def test_the_schema_of_the_experiment_file_has_nested_processes() -> None:
    schema = model.json_schema()
    nested = next(
        form
        for form in schema["$defs"].values()
        if form.get("properties", {}).get("kind", {}).get("const") == "superposition"
    )
    parts = nested["properties"]["processes"]["items"]
    assert len(parts["oneOf"]) == len(kinds())
    assert all(part["$ref"].removeprefix("#/$defs/") in schema["$defs"] for part in parts["oneOf"])
    ramp = next(
        form
        for form in schema["$defs"].values()
        if form.get("properties", {}).get("kind", {}).get("const") == "ramp"
    )
    assert "from" in ramp["required"]


def test_a_rate_may_be_zero_where_that_is_asked_for() -> None:
    assert units.parse_rate_or_zero("0/min") == 0
    assert units.parse_rate_or_zero("6/min") == Fraction(1, 10)
    with pytest.raises(units.UnitError, match="it is negative"):
        units.parse_rate_or_zero("-0/s")


@given(
    rate=st.fractions(min_value=Fraction(1, 60), max_value=1000, max_denominator=60),
    nanoseconds=st.integers(1, 100 * S),
)
def test_a_constant_rate_is_counted_exactly(rate: Fraction, nanoseconds: int) -> None:
    from uncia.workload.arrivals.constant import Process

    process = Process.model_construct(kind="constant", rate=rate, duration=nanoseconds)
    last = process.expected_requests() - 1
    assert (last * S) / rate < nanoseconds <= ((last + 1) * S) / rate


def test_the_reference_page_s_examples_are_right() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "experiment-file.md"
    section = page.read_text(encoding="utf-8").split("\n## Arrivals\n")[1].split("\n## ")[0]
    gaps, nested = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert yamlio.validate(Holder, yamlio.load(nested)).arrivals.expected_requests() == 39_000
    for line in gaps.splitlines():
        assert yamlio.validate(Holder, yamlio.load(line)).arrivals.expected_requests() == 30
