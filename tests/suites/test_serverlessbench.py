"""The suite of ServerlessBench on made-up chains: metrics, verdicts, and a timeout from a pilot."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from suite_rows import MS, claim, suite, write_run

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment.expect import parse_bound
from uncia.report.data import load
from uncia.stats.quantiles import QUANTILES, minimum_rows
from uncia.suites import catalogue, perform, pilot, results
from uncia.suites.claims import DIFFERS, REPRODUCED, UNCHECKED
from uncia.suites.forms import Pilot, Subject
from uncia.suites.metrics import metric
from uncia.suites.rows import SubjectRows
from uncia.units import parse_duration

STAGE = {"function": "f", "repeat": 1, "next": []}
REQUESTS = 20


def described(kind: str) -> dict[str, Any]:
    stages = {"a": {**STAGE, "next": ["b"]}, "b": STAGE}
    chain = {"name": "c", "kind": kind, "hops": 2, "stages": stages}
    return {"functions": ["f"], "streams": [{"function": "f", "stage": "a", "hops": chain}]}


def invocation(experiment: str, name: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    """An invocation between two times in ms, which waited 1 ms for its instance."""
    return {
        "run": "r",
        "experiment": experiment,
        "platform": "embedded",
        "function": "f",
        "invocation": name,
        "attempt": 1,
        "outcome": "ok",
        "start": "warm",
        "instance": "i",
        "started": start * MS,
        "ended": end * MS,
        "queued": MS,
        "execution": (end - start) * MS,
        "billed": (end - start) * MS,
        "allocated_cpu": 500_000,
        "allocated_memory": 1 << 30,
    } | more


def asked(number: int, took: int) -> dict[str, Any]:
    begin = number * 1_000
    times = {"scheduled": begin * MS, "sent": begin * MS, "received": (begin + took) * MS}
    return {"open_loop": False, **times}


def nested(experiment: str, failing: int = 0, took: int = 100) -> list[dict[str, Any]]:
    """Chains of two: the second runs for all but 10 ms of the first; so many at first fail."""
    rows = []
    for number in range(REQUESTS):
        begin, root = number * 1_000, f"r:{experiment}-0-{number}"
        outcome = {"outcome": "timeout", "error": "late"} if number < failing else {}
        first = invocation(experiment, root, begin + 2, begin + took - 2, stage="a")
        rows.append(first | asked(number, took) | outcome)
        second = invocation(experiment, f"{root}-b", begin + 8, begin + took - 6, stage="b")
        rows.append(second | {"parent": root})
    return rows


def sequence(experiment: str, failing: int = 0) -> list[dict[str, Any]]:
    """Chains of two, one after the other, with 3 ms between."""
    rows = []
    for number in range(REQUESTS):
        begin, root = number * 1_000, f"r:{experiment}-0-{number}"
        row = invocation(experiment, root, 0, 0, function="c", allocated_memory=None)
        nothing = dict.fromkeys(
            ("started", "ended", "queued", "execution", "billed", "start", "instance")
        )
        outcome = {"outcome": "timeout", "error": "late"} if number < failing else {}
        rows.append(row | nothing | asked(number, 30) | outcome)
        rows += [
            invocation(experiment, f"{root}-{name}", begin + at, begin + at + 10, stage=name)
            | {"parent": root}
            for name, at in (("a", 4), ("b", 17))
        ]
    return rows


def write(folder: Path, kinds: dict[str, list[dict[str, Any]]]) -> None:
    """Write a run whose experiments are of the kind that their names begin with."""
    write_run(folder, [row for rows in kinds.values() for row in rows])
    path = folder / "run.yaml"
    meta: Any = yaml.safe_load(path.read_text())
    meta["experiments"] = {name: described(name.split("-")[0]) for name in kinds}
    path.write_text(yaml.safe_dump(meta))


def figure(folder: Path, experiment: str, name: str, tariff: str = "") -> Any:
    subject = SubjectRows(experiment, Subject(experiment=experiment), load(folder))
    compute = metric(name, name).compute
    assert compute is not None
    return compute(subject, tariff)


def test_metrics_are_of_whole_chains(tmp_path: Path) -> None:
    write(tmp_path, {"nested-e": nested("nested-e", 3), "sequence-e": sequence("sequence-e")})
    # Of 96 ms the caller waits for 87, as the callee came 1 ms before it was started.
    assert figure(tmp_path, "nested-e", "executed_over_self").value == pytest.approx(
        (96 + 86) / (9 + 86)
    )
    assert figure(tmp_path, "nested-e", "billed_over_self").value == pytest.approx(182 / 95)
    parts = [
        figure(tmp_path, "nested-e", f"chain_{part}").value
        for part in ("startup", "communication", "execution")
    ]
    assert parts == pytest.approx([2, 3, 95])
    assert figure(tmp_path, "sequence-e", "executed_over_self").value == 1
    assert figure(tmp_path, "sequence-e", "gap_p50").value == 3
    assert figure(tmp_path, "nested-e", "gap_p50").why == "no stage of a sequence followed another"
    assert figure(tmp_path, "nested-e", "memory_time").value == pytest.approx(0.182)
    assert figure(tmp_path, "sequence-e", "memory_time").value == pytest.approx(0.020)
    share = figure(tmp_path, "nested-e", "chain_failed")
    assert (share.value, share.count, share.rows) == (15, 3, REQUESTS)
    late = figure(tmp_path, "nested-e", "chain_timed_out")
    assert (late.value, late.count, late.rows) == (15, 3, REQUESTS)
    first = figure(tmp_path, "nested-e", "first_success")
    assert (first.value, first.draws) == (4, None)


def test_chains_that_fail_otherwise_did_not_time_out(tmp_path: Path) -> None:
    rows = nested("nested-e", 4)
    for row in rows[:4]:
        if row["outcome"] == "timeout":
            row["outcome"] = "function_error"
    # Of the second chain a function behind the first one timed out.
    rows[3]["outcome"] = "timeout"
    write(tmp_path, {"nested-e": rows})
    assert figure(tmp_path, "nested-e", "chain_failed").count == 4
    assert figure(tmp_path, "nested-e", "chain_timed_out").count == 3


def test_a_subject_after_a_while_has_the_hops_of_its_chains(tmp_path: Path) -> None:
    write(tmp_path, {"nested-e": nested("nested-e")})
    form = Subject(experiment="nested-e", after="5s")
    rows = SubjectRows("later", form, load(tmp_path)).invocations
    assert rows.num_rows == 2 * (REQUESTS - 5)
    assert rows.column("parent").null_count == REQUESTS - 5


def test_preempted_attempts_are_no_chains_and_not_paid_for(tmp_path: Path) -> None:
    rows = nested("nested-e", 3)
    lost = rows[0] | {"outcome": "preempted", "error": "stopped", "received": None}
    write(tmp_path, {"nested-e": [*rows, lost]})
    assert figure(tmp_path, "nested-e", "chain_failed").count == 3
    assert figure(tmp_path, "nested-e", "first_success").value == 4
    assert figure(tmp_path, "nested-e", "memory_time").value == pytest.approx(0.182)


def test_a_chains_bill_is_that_of_all_its_invocations(tmp_path: Path) -> None:
    write(tmp_path, {"nested-e": nested("nested-e"), "sequence-e": sequence("sequence-e")})
    # 1 GB for 182 ms at 0.0000166667 USD a GB-s, and two fees; of a sequence 20 ms.
    nested_cost = figure(tmp_path, "nested-e", "chain_cost", "aws-lambda-x86")
    assert nested_cost.value == pytest.approx(0.182 * 16.6667 + 0.4)
    assert nested_cost.draws is not None
    cost = figure(tmp_path, "sequence-e", "chain_cost", "aws-lambda-x86")
    assert cost.value == pytest.approx(0.020 * 16.6667 + 0.4)
    none = figure(tmp_path, "nested-e", "chain_cost", "cloudflare-workers")
    assert none.value is None
    assert "no price" in none.why


def test_nothing_is_made_of_no_chains(tmp_path: Path) -> None:
    write(tmp_path, {"nested-e": nested("nested-e", REQUESTS)})
    for name in ("chain_execution", "billed_over_self", "executed_over_self"):
        assert figure(tmp_path, "nested-e", name).why == "no chain was complete"
    assert figure(tmp_path, "nested-e", "first_success").why == "no request succeeded"
    assert figure(tmp_path, "nested-e", "chain_failed").value == 100


@cache
def shipped() -> catalogue.Suite:
    """The suite, which takes a second to read."""
    return catalogue.find("serverlessbench")


def judged(folder: Path, name: str) -> dict[str, str]:
    """The verdicts on an entry, of the runs in its folder."""
    perform.State(folder, "serverlessbench").write()
    read = results.read(perform.State.read(folder), shipped())
    (entry,) = [item for item in read.entries if item.entry.name == name]
    return {finding.id.removeprefix(f"{name}."): finding.verdict for finding in entry.findings}


def verdicts(folder: Path, rows: dict[str, list[dict[str, Any]]]) -> dict[str, str]:
    """The verdicts on test case 3."""
    write(folder / "tc3" / "chains", rows)
    return judged(folder, "tc3")


def test_what_the_paper_says_of_long_chains_is_reproduced_and_doctored_rows_differ(
    tmp_path: Path,
) -> None:
    rows = {
        "nested-default": nested("nested-default"),
        "sequence-default": sequence("sequence-default"),
        "nested-short": nested("nested-short", failing=9),
        "sequence-short": sequence("sequence-short"),
    }
    assert set(verdicts(tmp_path / "paper", rows).values()) == {REPRODUCED}
    doctored = {
        "nested-default": nested("nested-default", took=20),
        "sequence-default": nested("sequence-default"),
        "nested-short": nested("nested-short"),
        "sequence-short": sequence("sequence-short", failing=12),
    }
    by_claim = verdicts(tmp_path / "doctored", doctored)
    assert by_claim["implication-iii-timeouts"] == DIFFERS
    assert by_claim["implication-iii-resources"] == DIFFERS
    assert by_claim["sequence-succeeds"] == DIFFERS
    few = {name: kept[: len(kept) // 5] for name, kept in rows.items()}
    assert verdicts(tmp_path / "few", few)["implication-iii-resources"] == UNCHECKED


def test_what_triggers_begin_is_no_part_of_a_chain_but_of_its_bill(tmp_path: Path) -> None:
    rows = nested("nested-e")
    for number in range(REQUESTS):
        begin, writer = number * 1_000 + 50, f"r:nested-e-0-{number}-b"
        # It begins while the client waits, and ends after it has its answer.
        late = invocation("nested-e", f"t:{number}", begin, begin + 400, stage="analysed")
        own_chain = invocation("nested-e", f"t:{number}-own_chain", begin + 100, begin + 200)
        rows += [late | {"parent": writer}, own_chain | {"parent": f"t:{number}"}]
    write(tmp_path, {"nested-e": rows})
    parts = [
        figure(tmp_path, "nested-e", f"chain_{part}").value
        for part in ("startup", "communication", "execution", "latency")
    ]
    assert parts == pytest.approx([2, 3, 95, 100])
    assert figure(tmp_path, "nested-e", "billed_over_self").value == pytest.approx(182 / 95)
    assert figure(tmp_path, "nested-e", "memory_time").value == pytest.approx(0.182 + 0.5)


def test_positions_in_the_lives_of_instances_and_their_starts(tmp_path: Path) -> None:
    rows = []
    for number in range(12):
        # Two instances take turns; the first invocation of each is slower, and waits for its start.
        took, cold = (50, {"start": "cold", "initialization": 7 * MS}) if number < 2 else (10, {})
        begin = number * 1_000
        row = invocation("e", f"r:e-0-{number}", begin, begin + took, instance=f"i{number % 2}")
        rows.append(row | asked(number, took) | cold)
    write_run(tmp_path, rows)
    data = load(tmp_path)

    def value(name: str, *life: int) -> float | None:
        subject = SubjectRows("e", Subject(experiment="e", life=list(life) or None), data)
        compute = metric(name, name).compute
        assert compute is not None
        return compute(subject, "").value

    assert value("execution_mean", 1, 1) == pytest.approx(50)
    assert value("execution_mean", 2, 6) == pytest.approx(10)
    assert value("execution_mean") == pytest.approx((2 * 50 + 10 * 10) / 12)
    assert value("execution_mean", 7, 9) is None
    assert value("start_p99", 1, 1) == pytest.approx(8)
    assert value("start_p99", 2, 2) == pytest.approx(1)
    assert value("prepare") is None


def served(experiment: str, instances: int, waiting: int, warming: int) -> list[dict[str, Any]]:
    """25 invocations in each instance: 10 ms of CPU, ``warming`` more in the first ten, waiting."""
    rows = []
    for number in range(25 * instances):
        position, instance = divmod(number, instances)
        cpu = 10 + (warming if position < 10 else 0) + number % 3
        begin = number * 1_000
        row = invocation(experiment, f"r:{experiment}-0-{number}", begin, begin + cpu + waiting)
        rows.append(
            row
            | asked(number, cpu + waiting)
            | {"instance": f"{experiment}-{instance}", "cpu_user": cpu * MS}
        )
    return rows


@pytest.mark.parametrize(("warming", "verdict"), [(20, REPRODUCED), (0, UNCHECKED)])
def test_waiting_for_cpus_is_no_state_that_instances_lack(
    warming: int, verdict: str, tmp_path: Path
) -> None:
    write_run(tmp_path / "tc10" / "alone", served("alone", 1, 0, 0))
    write_run(tmp_path / "tc10" / "many", served("many", 20, 200, warming))
    by_claim = judged(tmp_path, "tc10")
    assert by_claim["spread"] == REPRODUCED
    assert by_claim["implication-x"] == verdict
    if warming:
        assert by_claim["implication-x-positions"] == REPRODUCED
    else:
        assert by_claim["implication-x-positions"] == DIFFERS


PILOT = Pilot(run="pilot", cold="nested-cold", warm="nested-warm", functions=["f"])


@pytest.mark.parametrize(
    ("cold", "warm", "seconds"), [(9_000, 500, 5), (1_500, 10, 1), (3_200, 2_100, 3)]
)
def test_a_timeout_lies_between_a_warm_and_a_cold_chain(
    cold: int, warm: int, seconds: int, tmp_path: Path
) -> None:
    rows = [
        *nested("nested-cold", took=cold)[:2],
        *nested("nested-warm", took=warm),
    ]
    write_run(tmp_path, rows)
    chosen, sentence = pilot.timeout_s(tmp_path, PILOT)
    assert chosen == seconds
    assert warm < chosen * 1_000 < cold
    assert f"{cold / 1_000:.3f} s cold: the timeout is {seconds} s" in sentence
    document = yamlio.load("functions: {f: {source: hello}, g: {source: hello}}\n", "a.yaml")
    functions = pilot.with_timeout(document, PILOT, chosen).data["functions"]
    assert functions == {
        "f": {"source": "hello", "timeout": f"{seconds}s"},
        "g": {"source": "hello"},
    }


def test_without_a_second_between_there_is_no_timeout(tmp_path: Path) -> None:
    rows = [*nested("nested-cold", took=900)[:2], *nested("nested-warm", took=100)]
    write_run(tmp_path / "fast", rows)
    with pytest.raises(UnciaError, match="no whole second is a timeout between"):
        pilot.timeout_s(tmp_path / "fast", PILOT)
    write_run(tmp_path / "failed", nested("nested-cold", failing=REQUESTS))
    with pytest.raises(UnciaError, match="no chain that ended well"):
        pilot.timeout_s(tmp_path / "failed", PILOT)
    with pytest.raises(UnciaError, match="cannot be read"):
        pilot.timeout_s(tmp_path / "none", PILOT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"run": "later"}, "runs.only.pilot.run: it is no earlier run (allowed: first)"),
        ({"cold": "slower"}, "runs.only.pilot.cold: there is no such experiment"),
        ({"functions": ["bye"]}, "runs.only.pilot.functions: no function 'bye' (allowed: hello)"),
    ],
)
def test_a_pilot_that_is_not_there_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = suite(tmp_path / "s", {"fast": claim("slow.p50 > fast.p50")})
    other = (folder / "experiments" / "experiment.yaml").read_text()
    renamed = other.replace("slow:", "late-slow:").replace("fast:", "late-fast:")
    (folder / "experiments" / "first.yaml").write_text(renamed)
    path = folder / "fig1.yaml"
    entry: Any = yaml.safe_load(path.read_text())
    wanted = {"run": "first", "cold": "late-slow", "warm": "late-fast", "functions": ["hello"]}
    only = entry["runs"]["only"] | {"pilot": wanted | change}
    entry["runs"] = {"first": {"file": "./experiments/first.yaml"}, "only": only}
    path.write_text(yaml.safe_dump(entry, sort_keys=False))
    with pytest.raises(UnciaError) as caught:
        catalogue.find(f"{folder}/")
    assert message in caught.value.message


def quick(tmp_path: Path, entry: str, run: str) -> dict[str, Any]:
    """The experiments of a run of the suite with --quick."""
    entries = catalogue.find("serverlessbench").entries
    state = perform.State(tmp_path, "serverlessbench", quick=True)
    experiments: dict[str, Any] = perform.run_document(state, entries[entry], run).data[
        "experiments"
    ]
    return experiments


def test_quick_forms_have_the_rows_that_figures_need(tmp_path: Path) -> None:
    needed = minimum_rows(QUANTILES["p50"])
    # A worth needs so many starts with an initialization, and with hints few are cold.
    mix = quick(tmp_path, "hints", "perfect")["perfect"]["mix"]
    six = [stream["arrivals"] for stream in mix if stream["function"] != "other"]
    assert len(six) == 6
    rows = sum(rate(it["rate"]) * parse_duration(it["duration"]) / 10**9 for it in six)
    assert rows >= 8 * needed
    for run in ("native", "process", "crun", "runc", "runsc", "wasm"):
        for experiment in quick(tmp_path, "tc7", run).values():
            assert experiment["closed"]["requests"] > needed
    # What is restored is made within the warm-up, however few requests are measured.
    for name, experiment in quick(tmp_path, "fig14", "only").items():
        if "warmup" in experiment:
            assert parse_duration(experiment["warmup"]["duration"]) >= 5 * 10**9, name
    for experiment in quick(tmp_path, "tc9", "limited").values():
        bound = parse_bound(experiment["expect"]["cold"])
        assert 2 <= bound.least <= experiment["arrivals"]["bursts"]


def rate(text: str) -> float:
    """A rate as files write it, in requests a second."""
    number, unit = text.split("/")
    return float(number) / {"s": 1, "min": 60}[unit]
