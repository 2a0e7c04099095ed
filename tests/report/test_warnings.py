"""Which warnings of a run are read first."""

from uncia.experiment.table import warning_lines
from uncia.runs.warnings import by_importance

LOST = [
    "3 events that functions left for each other had not ended when the functions were removed:"
    " dropped, without a row.",
    "warm: 12 of 300 requests failed (12 timeout); they are not in its latencies.",
    "cold: 2 of 300 scheduled requests were never sent.",
    "warm: 3 answered requests are not in the platform's log",
    "functions reported 2 hops that the platform did not log",
    "the platform's log holds 4 invocations that no client row asked for; they are not in the"
    " tables",
    "warm: 5 invocations of its chains had not ended 10 s after the last answer",
]
OTHER = "The platform f is of an earlier version."
LATE = "warm: the generator was late: sent - scheduled has p99 3.00 ms (limit 1 ms)."
NOISE = [
    "During the run other processes used 59.0 % of the CPU time (80 % in the worst second). They"
    " competed with the functions and with the load generator.",
    "The host kept 3.0 % of the CPU time for others (steal). Latencies are longer.",
]
FEW = [
    "p99 rests on fewer than the 299 rows that a 95 % interval needs in cold (30): read it there as"
    " a single observation.",
    "No experiment 'warm' with rows: MR and TR have no base.",
]


def test_what_is_lost_comes_before_noise_and_small_samples() -> None:
    given = [*FEW, *NOISE, LATE, OTHER, *LOST]
    assert by_importance([*given, *given]) == [*LOST, OTHER, LATE, *NOISE, *FEW]


def test_a_run_says_those_that_matter_most() -> None:
    shown = list(warning_lines([*NOISE, *FEW, LOST[0]]))
    assert shown[0] == f"Warning: {LOST[0]}"
    assert shown[-1] == "5 warnings in the report."
