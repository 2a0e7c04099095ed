"""Verdicts on made-up tables: each can be flipped by other rows, and by nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from suite_rows import (
    ENTRY,
    EXPERIMENT,
    MS,
    claim,
    judged,
    row,
    suite,
    table,
    times,
    write_run,
)

from uncia.errors import UnciaError
from uncia.suites import perform
from uncia.suites.claims import DIFFERS, REPRODUCED, UNCHECKED, Finding

SLOW = [20.0 + number % 5 for number in range(40)]
FAST = [10.0 + number % 5 for number in range(40)]
FASTER = {"faster": claim("slow.execution_mean / fast.execution_mean > 1.5")}


@pytest.fixture
def only(tmp_path: Path) -> Path:
    """The folder of the entry's run."""
    return tmp_path / "out" / "fig1" / "only"


def finding(tmp_path: Path, expression: str, **more: str) -> Finding:
    """The verdict on one claim about the rows that were written."""
    folder = suite(tmp_path / "mine", {"it": claim(expression, **more)})
    (result,) = judged(folder, tmp_path / "out").findings
    return result


def test_rows_flip_a_verdict_on_a_ratio(tmp_path: Path, only: Path) -> None:
    expression = "slow.execution_mean / fast.execution_mean > 1.5"
    write_run(only, times("slow", SLOW) + times("fast", FAST))
    first = finding(tmp_path, expression)
    assert first.verdict == REPRODUCED
    assert first.ours == pytest.approx(22 / 12)
    assert first.interval is not None
    assert first.interval[0] > 1.5

    write_run(only, times("slow", FAST) + times("fast", FAST))
    assert finding(tmp_path, expression).verdict == DIFFERS

    # 1.5 on average, with both sides in the interval.
    spread = [6.0 + 24 * (number % 2) for number in range(40)]
    write_run(only, times("slow", spread) + times("fast", FAST))
    undecided = finding(tmp_path, expression)
    assert undecided.verdict == UNCHECKED
    assert "the interval holds both" in undecided.why
    assert undecided.ours == pytest.approx(1.5)


def test_the_other_side_of_the_same_claim_has_the_other_verdict(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", SLOW) + times("fast", FAST))
    assert finding(tmp_path, "slow.execution_mean < fast.execution_mean").verdict == DIFFERS
    assert finding(tmp_path, "slow.execution_mean > fast.execution_mean").verdict == REPRODUCED
    assert finding(tmp_path, "slow.execution_p50 - fast.execution_p50 > 5ms").verdict == REPRODUCED
    assert finding(tmp_path, "slow.execution_p50 - fast.execution_p50 > 50ms").verdict == DIFFERS


def test_rows_flip_a_verdict_on_a_share(tmp_path: Path, only: Path) -> None:
    def starts(cold: int, rows: int = 40) -> list[dict[str, Any]]:
        return [
            row("slow", number, start="cold" if number < cold else "warm") for number in range(rows)
        ]

    write_run(only, starts(40))
    assert finding(tmp_path, "slow.cold > 80%").verdict == REPRODUCED
    write_run(only, starts(2))
    assert finding(tmp_path, "slow.cold > 80%").verdict == DIFFERS
    write_run(only, starts(32))
    assert finding(tmp_path, "slow.cold > 80%").verdict == UNCHECKED
    # Three of three are not enough to say that more than half are.
    write_run(only, starts(3, rows=3))
    few = finding(tmp_path, "slow.cold > 50%")
    assert few.verdict == UNCHECKED
    assert few.ours == 100


def test_too_few_rows_are_no_verdict(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", SLOW[:5]) + times("fast", FAST))
    few = finding(tmp_path, "slow.execution_mean / fast.execution_mean > 1.5")
    assert few.verdict == UNCHECKED
    assert "5 rows are too few for slow.execution_mean, 6 are needed" in few.why
    tail = finding(tmp_path, "fast.p99 < 1s")
    assert tail.verdict == UNCHECKED
    assert "299 are needed" in tail.why


def test_a_single_observation_is_shown_and_not_judged(tmp_path: Path, only: Path) -> None:
    instances = [
        {"function": "hello", "instance": name, "started": started, "run": "r"}
        for name, started in (("i1", -MS), ("i2", 700 * MS))
    ]
    rows = [row("slow", number, instance=f"i{1 + number % 2}") for number in range(20)]
    write_run(only, rows, instances=instances)
    lag = finding(tmp_path, "slow.scaling_lag > 100ms")
    assert (lag.verdict, lag.ours, lag.interval) == (UNCHECKED, 700.0, None)
    assert "single observation" in lag.why


def test_another_platforms_times_are_shown_and_never_judged(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", SLOW))
    shown = finding(tmp_path, "slow.execution_mean < 1s", only_on="aws")
    assert shown.verdict == UNCHECKED
    assert shown.ours == pytest.approx(22)
    assert "shown and not judged" in shown.why
    # On that platform it is judged.
    judged_there = finding(tmp_path, "slow.execution_mean < 1s", only_on="embedded")
    assert judged_there.verdict == REPRODUCED


def test_what_cannot_be_checked_says_why(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", SLOW))
    unavailable = {"paper": "It flies", "place": "page 2", "unavailable": "there are no wings"}
    folder = suite(tmp_path / "mine", {"wings": unavailable})
    (result,) = judged(folder, tmp_path / "out").findings
    assert (result.verdict, result.why) == (UNCHECKED, "there are no wings")
    missing = finding(tmp_path, "fast.execution_mean < 1s")
    assert missing.verdict == UNCHECKED
    assert missing.ours is None


def test_a_run_that_was_not_made_and_one_that_failed_have_no_numbers(
    tmp_path: Path, only: Path
) -> None:
    expression = "slow.execution_mean > 1ms"
    assert finding(tmp_path, expression).why.endswith("not run")
    failed = ["slow: 3 of 40 timeout (declared: none)"]
    write_run(only, times("slow", SLOW), status="failed", failures=failed)
    result = finding(tmp_path, expression)
    assert (result.verdict, result.ours, result.interval) == (UNCHECKED, None, None)
    assert failed[0] in result.why
    write_run(only, times("slow", SLOW), status="interrupted")
    assert finding(tmp_path, expression).ours is None


def test_rows_of_failed_requests_are_in_no_execution(tmp_path: Path, only: Path) -> None:
    bad = [row("slow", 40 + number, outcome="timeout", execution=10**12) for number in range(9)]
    write_run(only, times("slow", SLOW) + bad)
    assert finding(tmp_path, "slow.execution_mean < 1s").ours == pytest.approx(22)


def test_a_subject_leaves_out_what_it_says(tmp_path: Path, only: Path) -> None:
    first = [row("slow", number, start="cold") for number in range(5)]
    write_run(only, first + [row("slow", 5 + number) for number in range(30)])
    assert finding(tmp_path, "late.cold < 50%").ours == 0
    assert finding(tmp_path, "slow.cold < 50%").ours == pytest.approx(100 * 5 / 35)


def test_a_noisy_machine_is_named(tmp_path: Path, only: Path) -> None:
    machine = [
        {"run": "r", "time": second, "counter": "cpu.background_percent", "value": 70.0}
        for second in range(5)
    ]
    write_run(only, times("slow", SLOW), machine=machine)
    noisy = finding(tmp_path, "slow.execution_mean > 1ms")
    assert noisy.verdict == REPRODUCED
    assert "noisy machine: other processes used 70.0 % of the CPU time" in noisy.why


def test_what_needs_a_quiet_machine_is_not_judged_on_a_noisy_one(
    tmp_path: Path, only: Path
) -> None:
    quiet = {**claim("slow.execution_mean > 1ms"), "quiet": True}
    folder = suite(tmp_path / "mine", {"it": quiet})
    write_run(only, times("slow", SLOW))
    (first,) = judged(folder, tmp_path / "out").findings
    assert first.verdict == REPRODUCED
    machine = [{"run": "r", "time": 1, "counter": "cpu.steal_percent", "value": 9.0}]
    write_run(only, times("slow", SLOW), machine=machine)
    (second,) = judged(folder, tmp_path / "out").findings
    assert second.verdict == UNCHECKED
    assert second.ours == first.ours
    assert "needs a quiet machine" in second.why


def test_costs_are_those_of_the_tariff(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", [10.0] * 40))
    result = finding(tmp_path, "slow.cost:aws-lambda-x86 < 1USD")
    assert result.verdict == REPRODUCED
    # 10 ms of the size with the vCPU that the rows have, and a fee, a million times.
    assert result.ours == pytest.approx(1e6 * (1769 / 1024 * 0.01 * 1.66667e-5 + 2e-7), rel=1e-4)
    assert finding(tmp_path, "slow.cost:aws-lambda-x86 > 1USD").verdict == DIFFERS


def test_ratios_are_relative_to_the_base_that_the_run_names(tmp_path: Path, only: Path) -> None:
    slow = [row("slow", number, received=number * 100 * MS + 36 * MS) for number in range(20)]
    write_run(only, slow + [row("fast", number) for number in range(20)], base="fast")
    result = finding(tmp_path, "slow.mr > 2.5")
    assert (result.verdict, result.ours) == (REPRODUCED, 3.0)
    assert finding(tmp_path, "fast.mr > 2.5").verdict == DIFFERS


def test_background_work_is_measured_over_rounds(tmp_path: Path, only: Path) -> None:
    rows, spans = [], []
    for number in range(8):
        start, collect = f"s{number}", f"c{number}"
        rows.append(row("slow", 2 * number, invocation=start, stage="start"))
        rows.append(row("slow", 2 * number + 1, invocation=collect, stage="collect", parent=start))
        for name, length in (("background", 1000 * MS), ("background_cpu", (10 + number) * MS)):
            spans.append(
                {
                    "run": "r",
                    "invocation": collect,
                    "name": name,
                    "start": 0,
                    "end": length,
                    "clock": "function",
                }
            )
    write_run(only, rows, spans=spans)
    use = finding(tmp_path, "slow.idle_vcpu < 0.02vCPU")
    assert use.verdict == REPRODUCED
    assert use.ours == pytest.approx(0.0135)
    assert finding(tmp_path, "slow.idle_use > 0.5").verdict == DIFFERS


def test_what_a_listener_heard_is_counted(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", SLOW))
    assert "nothing outside" in finding(tmp_path, "slow.lost > 50%").why

    def hear(lost: int, signalled: int) -> None:
        heard = [
            {
                "name": str(n),
                "beats": 9,
                "end": "silent" if n < lost else "closed",
                "signalled": n >= 20 - signalled,
            }
            for n in range(20)
        ]
        (only / "listener.json").write_text(json.dumps(heard))

    hear(20, 0)
    assert finding(tmp_path, "slow.lost > 50%").verdict == REPRODUCED
    assert finding(tmp_path, "slow.signalled > 50%").verdict == DIFFERS
    hear(0, 20)
    assert finding(tmp_path, "slow.lost > 50%").verdict == DIFFERS
    assert finding(tmp_path, "slow.signalled > 50%").verdict == REPRODUCED


def test_an_instance_with_many_connections_is_one_instance(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", SLOW))
    # All twenty saw the signal, each over the last of its ten connections.
    heard = [
        {"name": f"i{n // 10}", "beats": 9, "end": "silent", "signalled": n % 10 == 9}
        for n in range(200)
    ]
    (only / "listener.json").write_text(json.dumps(heard))
    signalled = finding(tmp_path, "slow.signalled < 20%")
    assert (signalled.verdict, signalled.ours) == (DIFFERS, 100)
    for wrong in ("{}", "[3]", '"x"', "["):
        (only / "listener.json").write_text(wrong)
        with pytest.raises(UnciaError, match="not what a listener wrote"):
            finding(tmp_path, "slow.signalled < 20%")


def test_survivors_are_no_sample(tmp_path: Path, only: Path) -> None:
    bad = [row("slow", 40 + n, outcome="timeout", execution=10**12) for n in range(4)]
    write_run(only, times("slow", SLOW) + bad)
    assert finding(tmp_path, "slow.execution_mean < 1s").verdict == REPRODUCED
    bad += [row("slow", 44 + n, outcome="timeout", execution=10**12) for n in range(4)]
    write_run(only, times("slow", SLOW) + bad)
    result = finding(tmp_path, "slow.execution_mean < 1s")
    assert (result.verdict, result.ours) == (UNCHECKED, pytest.approx(22))
    assert "8 of 48 requests of slow failed" in result.why
    # A share counts all of them.
    assert finding(tmp_path, "slow.failed > 5%").verdict == REPRODUCED


def test_shares_of_none_and_all_are_not_beyond_their_ends(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", SLOW))
    for touching in ("slow.cold > 0%", "slow.failed > 0%", "slow.cold < 0%"):
        assert finding(tmp_path, touching).verdict != REPRODUCED, touching
    write_run(only, [row("slow", number, start="cold") for number in range(40)])
    assert finding(tmp_path, "slow.cold < 100%").verdict == UNCHECKED


def test_what_is_known_to_differ_says_why(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", SLOW))
    reason = "time flows slowly here"
    differs = finding(tmp_path, "slow.execution_mean < 1ms", otherwise=reason)
    assert (differs.verdict, differs.why.endswith(reason)) == (DIFFERS, True)
    holds = finding(tmp_path, "slow.execution_mean > 1ms", otherwise=reason)
    assert (holds.verdict, reason in holds.why) == (REPRODUCED, False)


def test_a_run_of_a_file_that_has_changed_is_not_judged(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", SLOW))
    state = perform.State(tmp_path / "out", str(tmp_path / "mine"), files={"fig1/only": "another"})
    state.write()
    stale = finding(tmp_path, "slow.execution_mean > 1ms")
    assert (stale.verdict, stale.ours) == (UNCHECKED, None)
    assert "experiment file that has changed since" in stale.why


def test_times_of_a_cloud_are_judged_by_the_run_that_they_are_of(
    tmp_path: Path, only: Path
) -> None:
    there = "  there: {file: ./experiments/there.yaml}\n"
    entry = ENTRY.replace("subjects:\n", f"{there}subjects:\n")
    expressions = ("slow.execution_mean < 1s", "there.execution_mean < 1s")
    claims = {f"c{n}": claim(text, only_on="aws") for n, text in enumerate(expressions)}
    folder = suite(tmp_path / "mine", claims, entry)
    text = EXPERIMENT.replace("  slow:", "  there:").replace("  fast:", "  other:")
    (folder / "experiments" / "there.yaml").write_text(text)
    write_run(only, times("slow", SLOW))
    write_run(only.with_name("there"), times("there", SLOW))
    meta = only.with_name("there") / "run.yaml"
    meta.write_text(meta.read_text().replace("kind: embedded", "kind: aws"))
    here, cloud = judged(folder, tmp_path / "out").findings
    assert (here.verdict, cloud.verdict) == (UNCHECKED, REPRODUCED)


def test_claims_json_is_a_list_of_verdicts(tmp_path: Path, only: Path) -> None:
    write_run(only, times("slow", SLOW) + times("fast", FAST))
    folder = suite(tmp_path / "mine", FASTER)
    path = judged(folder, tmp_path / "out").write_claims()
    (item,) = json.loads(path.read_text())
    assert list(item) == ["id", "entry", "paper", "ours", "interval", "verdict", "why"]
    assert item["id"] == "fig1.faster"
    assert item["entry"] == "fig1"
    assert item["paper"] == "Somebody says so (page 1)"
    assert item["verdict"] == REPRODUCED
    low, high = item["interval"]
    assert low < item["ours"] < high


def test_made_up_tables_have_the_form_of_the_record() -> None:
    assert table(times("slow", SLOW)).num_rows == len(SLOW)
