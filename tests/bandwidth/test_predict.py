"""``uncia cpu predict``: CPU time from tables, bills, advice, the command, and published sizes."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from uncia import record, tariffs
from uncia.bandwidth import cpu_time
from uncia.bandwidth.predict import advice, bill, cpu, invert, measured, model, study
from uncia.bandwidth.predict.advice import Choice
from uncia.bandwidth.presets import preset
from uncia.cli import build
from uncia.errors import UnciaError

MS = 1_000_000
DATA = Path(__file__).parents[1] / "data" / "bandwidth"
HEAD = "memory_mb,samples,mean_ms,p5_ms,p50_ms,p95_ms\n"


def table(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def run(*args: str):
    return CliRunner().invoke(build(), ["cpu", "predict", *args])


# ---- published sizes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "target", "equation2"), [("aws", 0.07, 0.12), ("gcp", 0.09, 0.10)]
)
def test_published_sizes_are_predicted_from_one_vcpu_alone(platform, target, equation2):
    profile = preset(platform)
    path = DATA / f"{platform}-pyaes.csv"
    rows = [row for row in measured.read(path, profile).rows if row.size < profile.whole]
    result = study.study(
        profile, str(path), [row.size for row in rows], tariffs.get(profile.tariff), samples=1_000
    )
    errors = result.errors()
    assert len(errors) == len(rows) >= 15
    assert np.mean([abs(row[1]) for row in errors]) < target
    assert np.mean([abs(row[2]) for row in errors]) > equation2


def test_smaller_sizes_do_not_leak_into_the_prediction(tmp_path):
    profile = preset("aws")
    lines = (DATA / "aws-pyaes.csv").read_text(encoding="utf-8").splitlines()
    full = [lines[0], *(line for line in lines[1:] if int(line.split(",")[0]) >= profile.whole)]
    alone = table(tmp_path, "\n".join(full) + "\n")
    both = [
        study.study(profile, str(path), [128, 700], tariffs.get(profile.tariff), samples=200)
        for path in (DATA / "aws-pyaes.csv", alone)
    ]
    for item, other in zip(both[0].predicted, both[1].predicted, strict=True):
        assert np.array_equal(item.durations, other.durations)


# ---- CPU time ---------------------------------------------------------------------------------


def test_rows_at_one_vcpu_keep_their_mean_and_quantiles(tmp_path):
    path = table(
        tmp_path, HEAD + "512,10,60,50,60,70\n1769,100,17,15,16.9,19\n2048,300,18,16,18,20\n"
    )
    profile = preset("aws")
    result = cpu.from_full(measured.read(path, profile), profile)
    assert result is not None
    assert result.reported_ns == pytest.approx((17 * 100 + 18 * 300) / 400 * MS, rel=1e-6)
    assert float(result.cpu.mean) == pytest.approx(result.reported_ns, rel=1e-6)
    case = cpu.from_full(
        measured.read(table(tmp_path, HEAD + "1769,100,17,15,16.9,19\n"), profile), profile
    )
    assert case is not None
    values = cpu.values(case.cpu, 1_000) / MS
    assert np.quantile(values, (0.05, 0.5, 0.95)) == pytest.approx([15, 16.9, 19], rel=0.02)
    assert np.all(np.diff(values) >= 0)


def test_what_google_adds_is_no_cpu_time(tmp_path):
    profile = preset("gcp")
    path = table(tmp_path, "vcpu,mean_ms\n0.5,30\n1.0,20\n")
    result = cpu.from_full(measured.read(path, profile), profile)
    assert result is not None
    assert float(result.cpu.mean) == 20 * MS - profile.outside_ns
    short = table(tmp_path, "vcpu,mean_ms\n1.0,2\n")
    with pytest.raises(UnciaError, match=r"no more than what Google Cloud Run"):
        cpu.from_full(measured.read(short, profile), profile)


@pytest.mark.parametrize(
    ("text", "mean", "spread"),
    [
        ("16ms", 16, 0),
        ("normal(16ms, 1ms)", 16, 1),
        ("lognormal(16ms,2ms)", 16, 2),
        ("uniform(10ms, 22ms)", 16, 12 / 12**0.5),
        ("10ms,20ms*3", 17.5, 5 * 3**0.5 / 2),
    ],
)
def test_distributions_in_words(text, mean, spread):
    values = cpu.values(cpu.parse(text), 4_000) / MS
    assert values.mean() == pytest.approx(mean, rel=0.005)
    assert values.std() == pytest.approx(spread, rel=0.03, abs=0.01)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("normal(16, 1ms)", "no unit|is not a duration"),
        ("normal(1ms, 1ms)", "reaches below 0"),
        ("uniform(2ms, 1ms)", "needs a <= b"),
        ("often", "is not a duration|is no CPU time"),
    ],
)
def test_what_is_no_distribution_is_told(text, words):
    with pytest.raises(UnciaError, match=words):
        cpu.parse(text)


@pytest.mark.parametrize("sizes", [(1000,), (128, 505, 1000)])
def test_the_cpu_time_is_found_from_small_sizes_alone(tmp_path, sizes):
    selected, need = preset("aws"), 23 * MS
    means = model.predict(selected, cpu_time.constant(need), sizes, samples=500, seed=5)
    text = "".join(f"{estimate.size},{estimate.mean_ns / MS}\n" for estimate in means)
    path = table(tmp_path, f"memory_mb,mean_ms\n{text}")
    result = invert.inverted(measured.read(path, selected), selected, model.RANDOM)
    assert result.source == "inverted"
    assert result.low_ns <= need <= result.high_ns
    assert float(result.cpu.mean) == pytest.approx(need, rel=0.15 if len(sizes) == 1 else 0.05)
    assert "no row at one vCPU" in result.notes[0]


# ---- tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column memory_mb"),
        ("memory_mb,mean_ms\n", "has no row"),
        ("vcpu,mean_ms\n0.5,17\n", "column vcpu, but AWS Lambda is sized by memory_mb"),
        ("memory_mb,mean_s\n512,0.017\n", r"no column mean_ms\nIt has mean_s"),
        ("memory_mb,mean_ms\n512,fast\n", "line 2: mean_ms is 'fast'"),
        ("memory_mb,mean_ms\n512,-3\n", "line 2: mean_ms is '-3'"),
        ("memory_mb,mean_ms\n512,nan\n", "line 2: mean_ms is 'nan'"),
        ("memory_mb,mean_ms\n0.5,3\n", "no memory size in MB"),
        ("memory_mb,mean_ms\n512,17\n512,18\n", "line 3: the size of line 2"),
        ("memory_mb,mean_ms\n512\n", "line 2 has more or fewer values"),
        ("memory_mb,mean_ms,p5_ms,p95_ms\n512,17,18,16\n", "p95_ms is 16, below p5_ms, 18"),
        ("memory_mb,mean_ms,p5_ms,p95_ms\n512,17000,16,18\n", "Give all durations in ms"),
    ],
)
def test_bad_tables_are_told(tmp_path, text, words):
    with pytest.raises(UnciaError, match=words):
        measured.read(table(tmp_path, text), preset("aws"))


def test_shares_beyond_any_platform_are_told(tmp_path):
    path = table(tmp_path, "vcpu,mean_ms\n250,17\n")
    with pytest.raises(UnciaError, match="250 mvCPU are"):
        measured.read(path, preset("gcp"))


def test_a_run_is_a_table_too(tmp_path):
    count = 40
    rows = record.conform(
        pa.table(
            {
                "function": pa.array(["f"] * count),
                "invocation": pa.array([str(index) for index in range(count)]),
                "attempt": pa.array([1] * count),
                "outcome": pa.array(["ok"] * (count - 1) + ["function_error"]),
                "execution": pa.array([17 * MS] * 20 + [40 * MS] * 20),
                "allocated_memory": pa.array([1769 << 20] * 20 + [512 << 20] * 20),
            }
        ),
        "invocations",
        0,
    )
    path = record.write(rows, tmp_path / "invocations.parquet")
    result = measured.read(path, preset("aws"))
    assert [(row.size, row.samples, row.mean_ns) for row in result.rows] == [
        (512, 19, 40 * MS),
        (1769, 20, 17 * MS),
    ]
    with pytest.raises(UnciaError, match="says its execution and allocated_cpu"):
        measured.read(path, preset("gcp"))


def test_a_run_of_several_functions_is_of_the_one_that_is_named(tmp_path: Path) -> None:
    rows = record.conform(
        pa.table(
            {
                "function": pa.array(["slow"] * 20 + ["fast"] * 30),
                "invocation": pa.array([str(index) for index in range(50)]),
                "attempt": pa.array([1] * 50),
                "outcome": pa.array(["ok"] * 50),
                "execution": pa.array([60 * MS] * 20 + [16 * MS] * 30),
                "allocated_memory": pa.array([1769 << 20] * 50),
            }
        ),
        "invocations",
        0,
    )
    path = record.write(rows, tmp_path / "invocations.parquet")
    with pytest.raises(UnciaError, match="2 functions, whose CPU times are different: fast, slow"):
        measured.read(path, preset("aws"))
    with pytest.raises(UnciaError, match="has no invocation of 'none'"):
        measured.read(path, preset("aws"), "none")
    (row,) = measured.read(path, preset("aws"), "slow").rows
    assert (row.samples, row.mean_ns) == (20, 60 * MS)
    with pytest.raises(UnciaError, match="--cpu-time is no run"):
        study.study(preset("aws"), "16ms", [1769], tariffs.find("aws-lambda-x86"), function="slow")


def sent(folder: Path, *, open_loop: bool | None, gap: int = 0, instances: int = 1) -> Path:
    """A run at one vCPU whose instances rest 7 ms, in a closed loop, or requests every ``gap``."""
    count = 40
    starts = [number * (gap or 24 * MS) for number in range(count)]
    rows = pa.table(
        {
            "function": ["f"] * count,
            "invocation": [str(number) for number in range(count)],
            "experiment": ["one"] * 20 + ["two"] * 20,
            "attempt": [1] * count,
            "outcome": ["ok"] * count,
            "instance": [f"i{number % instances}" for number in range(count)],
            "open_loop": pa.array([open_loop] * count, pa.bool_()),
            "scheduled": starts if open_loop else pa.nulls(count, pa.int64()),
            # A minute lies between the experiments.
            "started": [at + (number // 20) * 60_000 * MS for number, at in enumerate(starts)],
            "ended": [
                at + 17 * MS + (number // 20) * 60_000 * MS for number, at in enumerate(starts)
            ],
            "execution": [17 * MS] * count,
            "allocated_memory": [1769 << 20] * count,
        }
    )
    return record.write(record.conform(rows, "invocations", 0), folder / "invocations.parquet")


def test_a_run_tells_its_own_arrivals(tmp_path):
    selected, tariff = preset("aws"), tariffs.get("aws-lambda-x86")

    def of(path, text=None):
        return study.study(selected, str(path), [512], tariff, arrivals=text, samples=60).arrivals

    path = sent(tmp_path, open_loop=False)
    result = of(path)
    assert result.think.points[0] == (0.0, 7 * MS)
    assert result.think.points[-1] == (1.0, 7 * MS)
    assert result.words == (
        f"one at a time, each about 7 ms after the end of the last one, as in {path}"
    )
    assert of(path, "closed") == result
    assert of(path, "random") == model.RANDOM
    # Two instances in turn: each rests while the other serves.
    path = sent(tmp_path, open_loop=False, instances=2)
    assert of(path).think.points[3] == (0.5, 31 * MS)
    path = sent(tmp_path, open_loop=False, instances=40)
    assert "no instance served two requests" in of(path).words
    path = sent(tmp_path, open_loop=True, gap=25 * MS)
    assert of(path) == model.Arrivals(None, f"at random, as in {path}, an open loop")
    path = sent(tmp_path, open_loop=True, gap=100 * MS)
    assert "came every 100 ms, a whole number of quota periods" in of(path).words
    path = sent(tmp_path, open_loop=None)
    assert of(path) == model.Arrivals(
        None, f"at random ({path} does not say how its requests were sent)"
    )


# ---- bills and advice -------------------------------------------------------------------------


def test_bills_round_each_invocation_up():
    profile = preset("aws")
    durations = np.array([1_000_000, 1_000_001, 2_500_000], dtype=np.int64)
    result = bill.billed(profile, [model.Predicted(1024, durations)], tariffs.get("aws-lambda-x86"))
    assert result[0].time_ms == pytest.approx(2)  # 1, 2 and 3 ms
    assert result[0].usd_per_million == pytest.approx(0.2 + 0.002 * 1e6 * 0.0000166667)
    assert result[0].fee_usd_per_million == pytest.approx(0.2)


def test_billed_time_is_that_of_the_size_sold_which_may_be_larger():
    durations = np.array([64 * MS, 72 * MS, 101 * MS], dtype=np.int64)
    asked = [model.Predicted(micro, durations) for micro in (200_000, 250_000)]
    result = bill.billed(preset("ibm"), asked, tariffs.get("ibm-code-engine"))
    # In steps of 100 ms: 100, 100 and 200.
    assert [item.time_ms for item in result] == pytest.approx([400 / 3] * 2)
    assert result[0].usd_per_million == result[1].usd_per_million


def test_billed_time_has_every_rule_of_the_tariff():
    free = tariffs.find(Path(__file__).parents[1] / "data" / "tariffs" / "first-free.yaml")
    document = free.model_dump(exclude={"charges": {1}})
    document["charges"][0]["free"] = "24 MB"
    tariff = tariffs.Tariff.model_validate(document)
    durations = np.array([90 * MS, 104 * MS, 131 * MS], dtype=np.int64)
    (result,) = bill.billed(preset("aws"), [model.Predicted(1024, durations)], tariff)
    # In steps of 10 ms without the first 100 ms: 0, 10 and 40.
    assert result.time_ms == pytest.approx(50 / 3)
    gb_s = (1024 - 24) / 1024 * 0.05 / 3
    assert result.usd_per_million == pytest.approx(0.2 + gb_s * 1e6 * 0.0000166667)


def test_more_invocations_than_need_be_are_thinned_evenly(monkeypatch):
    selected, tariff = preset("gcp"), tariffs.get("gcp-run-request")
    rng = np.random.default_rng(0)
    many = model.Predicted(250_000, rng.integers(MS, 900 * MS, 5_000))
    exact = bill.billed(selected, [many], tariff)[0]
    monkeypatch.setattr(bill, "ROWS", 500)
    thin = bill.billed(selected, [many], tariff)[0]
    assert thin.usd_per_million == pytest.approx(exact.usd_per_million, rel=0.005)
    assert thin != exact


def test_advice_takes_the_beginning_of_a_step():
    # Two steps: 40 ms to 700, 20 ms from 800 on; the bill is size times duration.
    sizes = [500, 600, 700, 800, 900, 1000]
    choices = [
        Choice(size, 40.0 if size < 800 else 20.0, size * (40 if size < 800 else 20) / 1e4)
        for size in sizes
    ]
    other = advice.instead(choices)
    assert [item and (item.size, item.reason) for item in other] == [
        (800, "faster"),
        (800, "faster"),
        (800, "faster"),
        None,
        (800, "as fast"),
        (800, "as fast"),
    ]
    assert other[2].saves == pytest.approx(1 - 1.6 / 2.8)
    assert other[2].faster == pytest.approx(0.5)
    assert [item.size for item in advice.ladder(choices)] == [800]
    steps = advice.steps(choices)
    assert [(step.take.size, step.avoid and step.avoid.size) for step in steps] == [
        (500, 700),
        (800, 1000),
    ]
    assert steps[0].extra == pytest.approx(0.4)


def test_a_faster_size_that_costs_more_is_worth_taking_too():
    choices = [Choice(512, 40.0, 1.0), Choice(600, 39.0, 1.1), Choice(1024, 20.0, 1.2)]
    assert [item.size for item in advice.ladder(choices)] == [512, 1024]
    assert advice.instead(choices)[2] is None
    assert advice.steps([]) == []


# ---- the command ------------------------------------------------------------------------------


def test_json_has_an_object_for_each_size(tmp_path):
    page = tmp_path / "page.html"
    result = run(
        "--like", "aws", "--cpu-time", str(DATA / "aws-pyaes.csv"), "--memory", "128,770,1500,1769",
        "--samples", "300", "--json", "--html", str(page),
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["memory_mb"] for row in rows] == [128, 770, 1500, 1769]
    small, middle, _, whole = rows
    assert small["p5_ms"] <= small["p50_ms"] <= small["p95_ms"]
    assert small["measured_mean_ms"] == 224.746
    assert small["error"] == pytest.approx(small["mean_ms"] / 224.746 - 1, abs=1e-6)
    assert middle["reciprocal_ms"] == pytest.approx(whole["mean_ms"] * 1769 / 770, rel=0.01)
    assert whole["mean_ms"] == pytest.approx(whole["reciprocal_ms"], rel=0.01)
    assert [row["instead"] for row in rows] == [770, None, None, 1500]
    assert small["instead_saves"] == pytest.approx(
        1 - middle["cost_usd_per_million"] / small["cost_usd_per_million"], abs=1e-5
    )
    assert [row["worth_taking"] for row in rows] == [False, True, True, False]
    assert "one at a time" in result.stderr
    text = page.read_text(encoding="utf-8")
    assert "Which size to take" in text
    assert "Against the measured sizes" in text


def test_google_is_sized_by_vcpu():
    result = run(
        "--like", "gcp", "--cpu-time", "normal(16ms,1ms)", "--vcpu", "0.1,0.25,1",
        "--samples", "300", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["vcpu"] for row in rows] == [0.1, 0.25, 1]
    assert rows[2]["mean_ms"] == pytest.approx(16 + 2.341, rel=0.01)
    assert rows[0]["billed_ms"] % 1 == pytest.approx(0, abs=1)
    assert rows[0]["mean_ms"] > 2 * rows[1]["mean_ms"] > 0
    assert all(row["measured_mean_ms"] is None and row["error"] is None for row in rows)


def test_for_people_it_says_what_to_take():
    result = run(
        "--like", "aws", "--cpu-time", "16ms", "--memory", "128..1769/41", "--at", "1700",
        "--samples", "300",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Worth taking, cheapest first:" in result.stdout
    assert "Instead of 1,700 MB" in result.stdout
    assert "more sizes: see --json" in result.stdout
    assert "Requests come at random." in result.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--like", "mars", "--cpu-time", "16ms"], "none of aws, gcp, ibm"),
        (["--like", "gcp", "--cpu-time", "16ms", "--memory", "512"], "sized by vCPU"),
        (["--like", "aws", "--cpu-time", "16ms", "--vcpu", "0.5"], "sized by memory"),
        (["--like", "aws", "--cpu-time", "16ms", "--memory", "64"], "no size of 64 MB"),
        (["--like", "gcp", "--cpu-time", "16ms", "--vcpu", "0.01"], "no size of 0.01 vCPU"),
        (["--like", "aws", "--cpu-time", "0ms", "--memory", "512"], "needs no prediction"),
        (["--like", "aws", "--cpu-time", "none.csv", "--memory", "512"], "cannot read none.csv"),
        (["--like", "aws", "--cpu-time", "16ms", "--arrivals", "soon"], "neither random nor"),
        (["--like", "gcp", "--cpu-time", "16ms", "--arrivals", "closed"], "is not known"),
        (["--like", "aws", "--cpu-time", "16ms", "--at", "1,2"], "^--at: '1,2' is not one size"),
        (["--like", "aws", "--cpu-time", "16ms", "--at", "much"], "^--at: (.|\n)*such as 1024"),
        (["--like", "gcp", "--cpu-time", "16ms", "--at", "much"], "^--at: (.|\n)*such as 0.5"),
        (["--like", "aws", "--cpu-time", "16ms", "--at", "0"], "^--at: 0 is no size"),
        (["--like", "aws", "--cpu-time", "16ms", "--tariff", "no-such"], "no-such"),
    ],
)  # fmt: skip
def test_mistakes_are_told(args, words):
    result = run("--samples", "50", *args)
    assert result.exit_code != 0
    assert isinstance(result.exception, UnciaError)
    with pytest.raises(UnciaError, match=words):
        raise result.exception


def test_a_comparison_may_be_another_table(tmp_path):
    other = table(tmp_path, "memory_mb,mean_ms\n512,40\n")
    result = run(
        "--like", "aws", "--cpu-time", "16ms", "--memory", "512,1024", "--samples", "200",
        "--measured", str(other), "--json",
    )  # fmt: skip
    rows = json.loads(result.stdout)
    assert [row["measured_mean_ms"] for row in rows] == [40, None]
