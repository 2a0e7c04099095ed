"""Chains that functions and the platform carry on: rows, parents, sections and refusals."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from run_helpers import Uncia, description, finish, function, left_behind, rows

from uncia import record, yamlio
from uncia.errors import UnciaError
from uncia.experiment import checks
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.experiment.stages import ANSWER, ChainPlan, StagePlan
from uncia.functions import golang
from uncia.stats import columns, hops

Row = dict[str, Any]

FILE = """\
name: chained
seed: 1
platform: {kind: embedded}
functions:
  hop: {source: hello, runtime: RUNTIME, memory: 512MB, timeout: 30s}
  fork: {source: hello, runtime: FORKS, memory: 512MB, timeout: 30s}
  size: {source: payload, memory: 512MB, timeout: 30s}
chains:
  line: {stages: {hop: {function: hop, repeat: 3}}}
  fork:
    stages:
      a: {function: fork}
      b: {function: hop, after: a}
      c: {function: hop, after: a}
  diamond:
    stages:
      a: {function: hop}
      b: {function: size, after: a, parameters: {size: 1KB}}
      c: {function: size, after: a, parameters: {size: 2KB}}
      d: {function: size, after: [b, c], parameters: {size: "{{answers.c.parameters.size}}"}}
experiments:
  nested: {chain: line, kind: nested, arrivals: {kind: burst, sizes: [2], bursts: 2, interval: 1s}}
  forked: {chain: fork, kind: nested, arrivals: {kind: burst, sizes: [2]}}
  sequence: {chain: diamond, kind: sequence, arrivals: {kind: burst, sizes: [2]}}
  events: {chain: fork, kind: asynchronous, arrivals: {kind: burst, sizes: [2]}}
"""


def runtime() -> str:
    """Go, whose programs start at once; without its compiler Python."""
    try:
        golang.find()
    except UnciaError:
        return "python"
    return "go"


def another_runtime() -> str:
    """Node.js, whose functions invoke others with packages of its own."""
    has_node = shutil.which("node") and shutil.which("npm")
    return "node" if has_node else runtime()


def of_experiment(table: list[Row], name: str) -> tuple[list[Row], list[Row]]:
    """The roots and the hops of an experiment."""
    chosen = [row for row in table if row["experiment"] == name]
    return [row for row in chosen if row["parent"] is None], [
        row for row in chosen if row["parent"]
    ]


def test_every_kind_of_chain_has_its_rows(uncia: Uncia, state_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "chained.yaml"
    file.write_text(FILE.replace("RUNTIME", runtime()).replace("FORKS", another_runtime()))
    out = tmp_path / "run"
    ended = finish(uncia("run", file, "--out", out, "--quiet"))
    assert ended.code == 0, ended.err
    assert left_behind(state_home) == []
    table: list[Row] = rows(out)
    experiments: Any = description(out)["experiments"]
    spans = record.read(out, "spans")
    invocations = record.read(out, "invocations")

    def summary(name: str) -> dict[str, Any]:
        chosen = invocations.filter(columns.is_word(invocations, "experiment", name))
        (chain,) = hops.summarise(chosen, spans, experiments[name])
        return chain

    assert {row["outcome"] for row in table} == {"ok"}
    for name, stages in {
        "nested": {"hop-2": 4, "hop-3": 4},
        "forked": {"b": 2, "c": 2},
        "sequence": {"a": 2, "b": 2, "c": 2, "d": 2},
        "events": {"b": 2, "c": 2},
    }.items():
        roots, later = of_experiment(table, name)
        assert Counter(row["stage"] for row in later) == stages, name
        assert all(row["scheduled"] is None and row["open_loop"] is None for row in later)
        assert all(row["execution"] is not None and row["billed"] is not None for row in later)
        chain = summary(name)
        assert (chain["begun"], chain["complete"]) == (len(roots), len(roots)), name
        assert chain["latency_ms"]["p50"] > 0

    roots, later = of_experiment(table, "nested")
    by_name = {row["invocation"]: row for row in [*roots, *later]}
    parents = {row["stage"]: by_name[row["parent"]]["stage"] for row in later}
    assert parents == {"hop-2": "hop-1", "hop-3": "hop-2"}
    assert all(by_name[row["parent"]]["execution"] > row["execution"] for row in later)
    (stage,) = summary("nested")["stages"]
    # On one kernel, clocks compare directly.
    assert (stage["hops"], stage["contradictions"], stage["transfers_withheld"]) == (8, 0, 0)
    assert stage["transfer_bound_ms"]["max"] == 0
    assert stage["overhead_ms"]["p50"] >= stage["transfer_ms"]["p50"] > 0

    roots, later = of_experiment(table, "sequence")
    assert {row["function"] for row in roots} == {"diamond"}
    assert {row["parent"] for row in later} == {row["invocation"] for row in roots}
    joined = [row for row in later if row["stage"] == "d"]
    assert all(row["response_bytes"] > 2_048 for row in joined), "c's size was handed on"

    totals: Any = yamlio.load(out / "summary.json").data
    tariffs = totals["tariffs"]
    twice = {name: it["billed_twice_usd"] for name, it in tariffs.items() if it["rows"]}
    # Where durations are rounded up to 100 ms, waiting a millisecond may cost nothing.
    assert any(amount > 0 for amount in twice.values())
    assert all(0 <= amount < tariffs[name]["cost_usd"] for name, amount in twice.items())
    # All invocations are billed, and executions of sequences are none.
    assert tariffs["aws-lambda-x86"]["rows"] == len(table) - 2
    assert totals["experiments"]["nested"]["hop_rows"] == 8
    assert totals["experiments"]["nested"]["latency_rows"] == 4
    for name in ("nested", "forked", "sequence", "events"):
        (parts,) = totals["experiments"][name]["chain_parts"]
        assert (parts["withheld"], sum(it["chains"] for it in parts["groups"])) == (
            {},
            parts["complete"],
        )
        for it in parts["groups"]:
            whole = it["startup_ns"] + it["communication_ns"] + it["execution_ns"]
            assert whole == it["latency_ns"] > it["communication_ns"] > 0, name
            assert (it["executed_over_self"] > 1) == (name in ("nested", "forked"))
            assert it["billed_ns"] >= it["executed_ns"]
    page = (out / "report.html").read_text()
    assert "What was billed twice" in page
    assert "Parts of chains" in page
    all_hops = sum(it["hop_rows"] for it in totals["experiments"].values())
    sent = f"All {len(table) - all_hops:,} requests with {all_hops:,} hops were sent"
    assert f"{sent} and ended as expected." in page


AGAIN = """\
import os
import urllib.request

def handler(event, context):
    name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
    url = f"{os.environ['AWS_ENDPOINT_URL_LAMBDA']}/2015-03-31/functions/{name}/invocations"
    request = urllib.request.Request(url, b"{}", {"X-Amz-Invocation-Type": "Event"})
    urllib.request.urlopen(request).close()
    return {}
"""


PATHS = """\
name: paths
seed: 1
platform: {kind: embedded}
functions:
  give: {source: ./give}
  take: {source: ./take}
chains:
  c:
    stages:
      give: {function: give}
      take:
        function: take
        parameters:
          whole: "{{answer}}"
          in: [{ö: "{{answer.öl}}"}, {q: '{{answer.say "n".1}}', s: "{{answer.it's}}"}]
          both: "{{answer.'\\"}}"
          deep: {n: "{{answer.a b.größe}}", back: '{{answer.c\\d}}'}
experiments:
  e: {chain: c, kind: sequence, arrivals: {kind: burst, sizes: [1]}}
"""

GIVEN = {"öl": 1, 'say "n"': [0, 2], "it's": 3, "a b": {"größe": 4}, "c\\d": 5, "'\"": 6}


def test_keys_beyond_ascii_stand_as_they_are_in_paths() -> None:
    stages = [
        StagePlan("a", "f", "f", {}, next=(1,)),
        StagePlan("b", "f", "f", {"n": {ANSWER: ["öl", "größe", "٣", "3"]}}),
    ]
    states = ChainPlan("c", "sequence", stages).definition(lambda name: name)["States"]
    assert states["b"]["Parameters"] == {"n.$": '$["öl"].größe["٣"][3]'}


def test_keys_of_any_name_are_found_in_the_answers_of_a_sequence(
    uncia: Uncia, tmp_path: Path
) -> None:
    taken = {
        "whole": GIVEN,
        "in": [{"ö": 1}, {"q": 2, "s": 3}],
        "both": 6,
        "deep": {"n": 4, "back": 5},
    }
    for name, code in (
        ("give", f"return {GIVEN!r}"),
        ("take", f"assert event == {taken!r}, event"),
    ):
        (tmp_path / name).mkdir()
        text = f"def handler(event, context):\n    {code}\n"
        (tmp_path / name / "handler.py").write_text(text)
    path = tmp_path / "paths.yaml"
    path.write_text(PATHS)
    ended = finish(uncia("run", path, "--out", tmp_path / "out", "--quiet"))
    assert ended.code == 0, ended.err


def test_a_function_that_invokes_itself_without_end_ends_with_the_run(
    uncia: Uncia, state_home: Path, tmp_path: Path
) -> None:
    function(tmp_path / "again", AGAIN)
    path = tmp_path / "again.yaml"
    path.write_text(
        "name: again\nseed: 1\nplatform: {kind: embedded}\n"
        "functions: {f: {source: ./again, network: platform, timeout: 60s}}\n"
        "experiments: {e: {function: f, arrivals: {kind: burst, sizes: [1]}}}\n"
    )
    out = tmp_path / "out"
    ended = finish(uncia("run", path, "--out", out))
    # What was served when the platform ended has failed.
    assert ended.code in (0, 1), ended.err
    warning = "that functions left for each other had not ended when the functions were removed"
    outcomes = record.read(out, "invocations")["outcome"].to_pylist()
    # Each leaves the next before it ends well. The last may find its function gone, or be too slow.
    assert any(warning in text for text in description(out)["warnings"]) or set(outcomes) != {"ok"}
    assert left_behind(state_home) == []


def refusal(text: str) -> str:
    document = yamlio.load(text, "chained.yaml")
    with pytest.raises(UnciaError) as caught:
        plan(checks.check(document), Sources(document, Path()))
    return caught.value.message


CHAIN = """\
name: chained
platform: {kind: embedded}
functions:
  f: {source: hello, runtime: python}
  g: {source: payload}
chains:
  c:
    stages:
      a: {function: f}
      b: {function: f}
experiments:
  e: {chain: c, kind: nested, arrivals: {kind: burst, sizes: [1]}}
"""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"b: {function: f}": "b: {function: h}"}, "there is no function 'h' (allowed: f, g)"),
        ({"b: {function: f}": "b: {function: f, after: b}"}, "a stage cannot wait for itself"),
        (
            {"b: {function: f}": "b: {function: f, after: d}\n      d: {function: f}"},
            "'d' comes after 'b' in the file, and waits for it: a circle",
        ),
        (
            {"b: {function: f}": "b: {function: f, repeat: 100000}"},
            "chains.c.stages.b.repeat: must be less than or equal to 1000, not 100000",
        ),
        (
            {
                "{kind: embedded}": "{kind: http}",
                "source: hello, runtime: python": "url: http://a.example",
                "source: payload": "url: http://b.example",
                "kind: nested": "kind: asynchronous",
            },
            "the platform http has no asynchronous chains (allowed: client, nested)",
        ),
        (
            {
                "{kind: embedded}": "{kind: embedded, max_instances: 4}",
                "b: {function: f}": "b: {function: f, repeat: 4}",
            },
            "each of its 5 stages waits in an instance for the next, and the platform has 4 at most"
            " (max_instances): the chain would wait for itself",
        ),
        (
            {
                "{kind: embedded}": "{kind: embedded, max_instances: 5}",
                "arrivals: {kind: burst, sizes: [1]}": "closed: {clients: 3, requests: 9}",
            },
            "experiments.e: its 3 clients have 6 stages at a time that wait in an instance for the"
            " next, and the platform has 5 at most (max_instances): chains would be turned away",
        ),
        (
            {
                "arrivals: {kind: burst, sizes: [1]}": "closed: {clients: 51, requests: 99}",
            },
            "its 51 clients have 102 stages at a time that wait in an instance for the next, and"
            " the platform has 100 at most",
        ),
        (
            {
                "{source: payload}": "{source: relay, parameters: {size: 5MB}}",
                "a: {function: f}": "a: {function: g}",
                "b: {function: f}": "b: {function: g, parameters: {payload: '{{answer.payload}}'}}",
            },
            "and the platform embedded takes 6,291,556 at most in nested chains",
        ),
        (
            {
                "{source: payload}": "{source: relay, parameters: {size: 5MB}}",
                "a: {function: f}": "a: {function: g}",
                "kind: nested": "kind: client",
            },
            "functions.g: its answer has 6,990,610 bytes with the payload, and the platform"
            " embedded passes 6,291,556 at most",
        ),
        ({"runtime: python": "runtime: ruby"}, "functions in ruby cannot invoke the next stage"),
        (
            {"runtime: python": "runtime: python, network: none"},
            "its network is none: a stage that invokes the next needs platform",
        ),
        ({"b: {function: f}": "b: {function: f, think: 5ms}"}, "only the client can do so"),
        (
            {
                "a: {function: f}": "a-2: {function: f}",
                "b: {function: f}": "a: {function: f, repeat: 2}",
            },
            "two stages are called a-2: those that repeat get numbers",
        ),
        (
            {
                "{kind: embedded}": "{kind: http}",
                "source: hello, runtime: python": "url: http://a.example, method: GET",
                "source: payload": "url: http://b.example",
            },
            "functions.f.method: only the client sends such requests; a chain of it is nested",
        ),
        (
            {
                "{kind: embedded}": "{kind: http}",
                "source: hello, runtime: python": "url: 'http://a.example', headers: {x-key: k}",
                "source: payload": "url: http://b.example",
            },
            "functions.f.headers: only the client sends such requests; a chain of it is nested",
        ),
        (
            {
                "b: {function: f}": "b: {function: f, after: a}\n"
                "      c: {function: f, after: a}\n      d: {function: f, after: b}\n"
                "      x: {function: f, after: b}\n"
                "      z: {function: g, after: [d, x, c], parameters: {seed: '{{answers.c}}'}}",
                "kind: nested": "kind: sequence",
            },
            "its answers are not one of each branch of a fan-out",
        ),
        (
            {"b: {function: f}": "b: {function: f, settings: {replicas: 2}}"},
            "f has replicas, which only a client visits in turn",
        ),
        (
            {
                "b: {function: f}": "b: {function: f, after: a}\n"
                "      c: {function: f, after: a}\n      d: {function: f, after: [b, c]}"
            },
            "several functions would invoke it; this chain is nested",
        ),
        (
            {
                "b: {function: f}": "b: {function: g, parameters: {seed: '{{answer.a}} and more'}}",
            },
            "only the client makes texts of answers; write nothing but {{answer}}",
        ),
        (
            {
                "b: {function: f}": "b: {function: f, after: a}\n"
                "      c: {function: f, after: a}\n      d: {function: f, after: [b, c]}\n"
                "      e: {function: f, after: c}",
                "kind: nested": "kind: sequence",
            },
            "in a sequence, branches meet in one stage or in none",
        ),
        (
            {
                "{kind: embedded}": "{kind: embedded, data_limit: 10}",
                "b: {function: f}": "b: {function: g}",
                "kind: nested": "kind: sequence",
            },
            "its event has 25 bytes, and the platform embedded takes 10 at most in sequence chains",
        ),
        (
            {
                "b: {function: f}": "b: {function: g, parameters: {of: [1, ['{{answer.n}}']]}}",
                "kind: nested": "kind: sequence",
            },
            "chains.c.stages.b.parameters.of[1][0]: a sequence cannot make a value of an answer an"
            " item of a list",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    changes: dict[str, str], message: str
) -> None:
    text = CHAIN
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after, 1)
    assert message in refusal(text)
