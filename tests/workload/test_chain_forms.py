"""Chains as a person writes them: what they come to, and what is refused with its place."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import checks, model
from uncia.experiment.plan import Plan
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.workload import chains
from uncia.workload import model as workload_model
from uncia.workload.client import ClosedLoop
from uncia.workload.loops import Closed
from uncia.workload.resolve import prepare

MS = 1_000_000

FILE = """\
name: sample
seed: 7
platform: {kind: http}
functions:
  f: {url: "http://127.0.0.1:1/f", parameters: {size: 1}}
  g: {url: "http://127.0.0.1:1/g"}
  h: {url: "http://127.0.0.1:1/h", method: GET}
chains:
  diamond:
    stages:
      split: {function: f}
      left:
        function: g
        parameters: {n: "{{answer.n}}"}
      right: {function: g, after: split, think: 20ms, body: "{{answer}}"}
      join:
        function: f
        after: [left, right]
        parameters: {sum: "{{answers.left.sum}}"}
experiments:
  chained:
    chain: diamond
    kind: client
    arrivals: {kind: constant, rate: 5/s, duration: 1s}
    warmup: {kind: burst, sizes: [2]}
  clients: {function: f, closed: {clients: 2, requests: 10}}
  mixed:
    mix:
      - {function: f, arrivals: {kind: burst, sizes: [3]}}
      - {chain: diamond, closed: {clients: 1, duration: 2s}, start: 1s}
"""


def planned(text: str) -> Plan:
    document = yamlio.load(text, "sample.yaml")
    return plan(checks.check(document), Sources(document, Path()))


def test_a_chain_comes_to_a_stream_for_each_stage() -> None:
    warmup, chained, clients, mixed = planned(FILE).experiments
    assert [stream.stage for stream in chained.streams] == ["split", "left", "right", "join"]
    assert [stream.after for stream in chained.streams] == [(), (0,), (0,), (1, 2)]
    assert [stream.think.min for stream in chained.streams] == [0, 0, 20_000_000, 0]
    split, left, right, join = chained.streams
    assert (split.event, split.template) == ({"size": 1}, None)
    assert left.template == '{"n": {{json answer.n}}}'
    assert right.template == "{{answer}}"
    assert join.template == '{"size": 1, "sum": {{json answers.left.sum}}}'
    assert [stream.label for stream in chained.streams] == ["f", "g", "g#2", "f#2"]
    assert (chained.expected_requests(), chained.span_ns()) == (20, 1_000_000_000)
    assert (warmup.expected_requests(), warmup.warmup_of) == (8, "chained")
    assert [stream.after for stream in warmup.streams] == [(), (0,), (0,), (1, 2)]
    assert (clients.expected_requests(), clients.is_bounded()) == (10, True)
    assert (mixed.expected_requests(), mixed.is_bounded()) == (3, False)
    assert [stream.after for stream in mixed.streams] == [(), (), (1,), (1,), (2, 3)]
    assert mixed.streams[1].start_ns == 1_000_000_000
    assert mixed.span_ns() == 3_000_000_000


def test_settings_of_a_stage_are_a_deployment_of_its_own() -> None:
    text = FILE.replace("{kind: http}", "{kind: embedded}")
    for name in "fgh":
        text = text.replace(f'url: "http://127.0.0.1:1/{name}"', "source: hello")
    text = text.replace(", parameters: {size: 1}", "").replace(", method: GET", "")
    text = text.replace('        parameters: {n: "{{answer.n}}"}\n', "")
    text = text.replace(
        '        parameters: {sum: "{{answers.left.sum}}"}\n', "        settings: {memory: 256MB}\n"
    )
    chained = planned(text).experiments[1]
    assert [stream.deployment for stream in chained.streams] == ["f", "g", "g", "f-diamond-join"]


def test_the_resolved_file_reads_back_as_the_same() -> None:
    file = checks.check(yamlio.load(FILE, "sample.yaml"))
    assert checks.check(yamlio.load(json.dumps(model.resolved(file)), "again")) == file


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            "after: split,",
            "after: join,",
            "right.after: 'join' comes after 'right' in the file, and waits for it: a circle"
            " (allowed: split, left)",
        ),
        ("after: split,", "after: right,", "right.after: a stage cannot wait for itself"),
        (
            "{function: g, after: split",
            "{function: g, after: late",
            "right.after: there is no stage 'late' before 'right' (allowed: split, left)",
        ),
        (
            "left:\n        function: g\n",
            "left:\n        function: g\n        after: right\n",
            "left.after: 'right' comes after 'left' in the file: put it before (allowed: split)",
        ),
        ("after: split,", "after: spilt,", "right.after: there is no stage 'spilt' before 'right'"),
        ("[left, right]", "[left, left]", "sample.yaml:18: chains.diamond.stages.join.after: it"),
        ("[left, right]", "[]", "join.after: a chain has one first stage"),
        ("split: {function: f}", "split: {function: f, after: join}", "split.after: the first"),
        ("split: {function: f}", "split: {function: f, think: 1s}", "split.think: there is no"),
        (
            "split: {function: f}",
            "split: {function: f, after_failures: true}",
            "split.after_failures: the first",
        ),
        ("split: {function: f}", "split: {function: x}", "split.function: there is no function"),
        (
            "split: {function: f}",
            "split: {function: f, body: '{{answer}}'}",
            "split.body: {{answer}}: no stage comes before 'split'",
        ),
        ("answers.left.sum", "answer.sum", "'join' waits for several stages"),
        ("answers.left.sum", "answers.lift.sum", "does not come after such a stage"),
        ("answer.n", "answers.right", "sample.yaml:14: chains.diamond.stages.left.parameters.n"),
        ("answers.left.sum", "answers.left..sum", "a key is empty"),
        (
            "{size: 1}",
            '{size: "{{answer.n}}"}',
            "sample.yaml:5: functions.f.parameters.size: {{answer.n}}: no stage comes before",
        ),
        (
            'g: {url: "http://127.0.0.1:1/g"}',
            'g: {url: "http://127.0.0.1:1/g", parameters: {deep: [{a: "{{answers.no}}"}]}}',
            "sample.yaml:6: functions.g.parameters.deep: {{answers.no}}: 'left' does not come",
        ),
        ("1:1/g", "1:1/{{answers.no}}", "sample.yaml:6: functions.g.url: {{answers.no}}: 'left'"),
        ("1:1/g", "1:1/{{size}}", "functions.g.url: {{size}} is no reference to an answer"),
        (
            'url: "http://127.0.0.1:1/f"',
            'urls: ["http://a/", "http://a/{{answer}}"]',
            "functions.f.urls[1]: {{answer}}: no stage comes before 'split'",
        ),
        ('body: "{{answer}}"', 'body: "{{anwser}}"', "right.body: {{anwser}} is no reference"),
        ('body: "{{answer}}"', 'body: "{{answer}"', "right.body: '{{answer}': nothing closes"),
        (
            "answer.n}}",
            "anwser.n}}",
            "sample.yaml:14: chains.diamond.stages.left.parameters.n: {{anwser.n}} is no reference"
            " to an answer; write {{{{ for two braces (allowed: answer, ",
        ),
        ("answers.left.sum}}", "number}}", "join.parameters.sum: {{number}} is no reference"),
        (
            'g, after: split, think: 20ms, body: "{{answer}}"',
            "h, after: split, body: x",
            "right.body: GET has no body",
        ),
        ('body: "{{answer}}"', 'body: "x", parameters: {a: 1}', "parameters or a body, not both"),
        ("{function: g, after: split", "{function: h, after: split", "GET has no body"),
        ("    kind: client\n", "    kind: platform\n", "experiments.chained.kind"),
        ("chain: diamond\n", "chain: square\n", "chained.chain: there is no chain 'square'"),
        (
            "chain: diamond\n",
            "chain: diamond\n    function: f\n",
            "a function or a chain, not both",
        ),
        ("    chain: diamond\n", "    function: f\n", "kind is of a chain, and there is none"),
        (
            "chain: diamond\n",
            "chain: diamond\n    parameters: {a: 1}\n",
            "parameters and settings belong into its stages",
        ),
        ("closed: {clients: 2, requests: 10}", "closed: {clients: 2}", "a closed loop needs a"),
        (
            "requests: 10}",
            "requests: 10}, arrivals: {kind: burst, sizes: [1]}",
            "arrivals or a closed loop, not both",
        ),
        (
            "chain: diamond\n",
            "chain: diamond\n    sweep: {parameter: {a: [1]}}\n",
            "not over a chain",
        ),
        (", closed: {clients: 1, duration: 2s}", "", "a stream has arrivals or a closed loop"),
        ("think: 20ms", "think: 20", "right.think: 20 has no unit"),
        ("think: 20ms", "think: {min: 2s, max: 1s}", "right.think: max (1s) is below min (2s)"),
        ("think: 20ms", "think: {min: 2s}", "right.think.max: "),
        ("think: 20ms", "think: {min: 2s, max: 3s, mean: 2s}", "right.think.mean: unknown key"),
        ("requests: 10}", "requests: 10, think: long}", "clients.closed.think: 'long'"),
        (
            "requests: 10}",
            f"requests: {10**20}}}",
            "clients.closed.requests: must be less than or equal to 9223372036854775807",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(before: str, after: str, words: str) -> None:
    assert before in FILE
    with pytest.raises(UnciaError) as caught:
        planned(FILE.replace(before, after, 1))
    message = str(caught.value)
    assert message.startswith("sample.yaml:")
    assert words in message


def test_a_parameter_that_a_catalogue_function_does_not_have() -> None:
    text = FILE.replace("{kind: http}", "{kind: embedded}")
    for name in "fgh":
        text = text.replace(f'url: "http://127.0.0.1:1/{name}"', "source: hello")
    text = text.replace(", parameters: {size: 1}", "").replace(", method: GET", "")
    with pytest.raises(UnciaError) as caught:
        planned(text)
    assert "left.parameters.n: hello has no parameter 'n' (allowed: none)" in str(caught.value)
    text = text.replace("source: hello", "source: payload")
    with pytest.raises(UnciaError) as caught:
        planned(text)
    expected = "left.parameters.n: payload has no parameter 'n' (allowed: size, seed)"
    assert expected in str(caught.value)
    with pytest.raises(UnciaError) as caught:
        planned(text.replace("{{answer.n}}", "3"))
    assert expected in str(caught.value)


WORKLOAD = """\
name: sample
functions:
  f: {url: "http://127.0.0.1:1/f", body: {text: "{}"}}
  g: {url: "http://127.0.0.1:1/g", body: {template: "{{answer.n}}"}}
chains:
  two:
    stages:
      one: {function: f}
      two: {function: g, think: 1ms, after_failures: true}
      three: {function: g, after: [one, two], body: {template: "{{answers.one}}"}}
streams:
  - {chain: two, kind: client, arrivals: {kind: constant, rate: 20/s, duration: 1s}, start: 5ms}
  - {function: f, closed: {clients: 2, requests: 4, together: true}}
"""


def test_braces_of_the_first_stage_are_text_and_escaped_ones_of_later_stages_are_two() -> None:
    text = FILE.replace(
        "split: {function: f}", 'split: {function: f, parameters: {a: "{{{{x}} {{y}}"}}'
    ).replace('{n: "{{answer.n}}"}', '{n: "{{{{x}}"}')
    chained = planned(text).experiments[1]
    assert chained.streams[0].event == {"size": 1, "a": "{{{{x}} {{y}}"}
    assert chained.streams[0].template is None
    assert chained.streams[1].template == '{"n": "{{{{x}}"}'


def test_a_url_of_a_function_that_follows_no_answer() -> None:
    text = FILE.replace("1:1/h", "1:1/{{answer}}").replace(
        "clients: {function: f", "clients: {function: h"
    )
    with pytest.raises(UnciaError, match=r"functions.h.url: .*only stages of chains follow"):
        planned(text)


def test_a_stage_with_a_body_of_its_own_has_the_fields_that_it_mentions() -> None:
    text = WORKLOAD.replace(
        'body: {template: "{{answer.n}}"}}',
        'query: {q: "{{c}}"}, body: {template: "{{a}}"},'
        " fields: {a: {kind: uuid}, b: {kind: uuid}, c: {kind: uuid}}}",
    ).replace("{{answers.one}}", "{{ b }} {{{{a}}")
    workload = workload_model.check(yamlio.load(text, "load.yaml"))
    streams = prepare(workload, Path(), dry_run=True).load.streams
    assert sorted(streams[1].fields) == ["a", "b", "c"]
    assert sorted(streams[2].fields) == ["b", "c"]


def test_a_workload_file_has_the_same_chains() -> None:
    workload = workload_model.check(yamlio.load(WORKLOAD, "load.yaml"))
    prepared = prepare(workload, Path(), dry_run=True)
    answer = [stream.engine() for stream in prepared.load.streams]
    assert [stream.get("stage") for stream in answer] == ["one", "two", "three", None]
    assert [stream.get("after") for stream in answer] == [
        None,
        {"streams": [0], "think_ns": 1_000_000, "after_failures": True},
        {"streams": [0, 1], "think_ns": 0},
        None,
    ]
    assert [stream["start_ns"] for stream in answer] == [5_000_000, 0, 0, 0]
    assert answer[2]["body"] == {"template": "{{answers.one}}"}
    assert answer[3]["closed"]["together"]
    assert prepared.expected == 64
    assert prepared.sentences == [
        "chain two (one > two > three (after one and two)): evenly at 20/s for 1s",
        "f bursts of 2 back to back, at most 4 requests",
    ]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("answers.one", "answers.none", "stages.three.body: {{answers.none}}"),
        ("one: {function: f}", "one: {function: g}", "stages.one.function: {{answer.n}}: no stage"),
        ('1/f", body', '1/{{answer}}", body', "stages.one.function: {{answer}}: no stage comes"),
        ('1/g", body', '1/g", query: {a: "{{answers.no}}"}, body', "two.function: {{answers.no}}"),
        ("[one, two]", "[one, tow]", "stages.three.after: there is no stage 'tow'"),
        ("chain: two,", "chain: tow,", "streams[0].chain: there is no chain 'tow'"),
        ("chain: two,", "chain: two, function: f,", "exactly one of function and chain"),
        ("chain: two,", "function: f,", "kind is of a chain"),
    ],
)
def test_what_is_wrong_in_a_workload_file(before: str, after: str, message: str) -> None:
    assert before in WORKLOAD
    with pytest.raises(UnciaError) as caught:
        workload_model.check(yamlio.load(WORKLOAD.replace(before, after, 1), "load.yaml"))
    assert message in str(caught.value), str(caught.value)


def test_thinking_is_a_duration_or_drawn_between_two() -> None:
    text = FILE.replace("think: 20ms", "think: {min: 20ms, max: 40ms}").replace(
        "requests: 10", "requests: 10, think: {min: 0s, max: 5ms}"
    )
    document = yamlio.load(text, "sample.yaml")
    file = checks.check(document)
    _, chained, clients, _ = plan(file, Sources(document, Path())).experiments
    assert (chained.streams[2].think.min, chained.streams[2].think.most_ns) == (20 * MS, 40 * MS)
    loop = clients.streams[0].arrivals
    assert isinstance(loop, Closed)
    answer = ClosedLoop.of(loop).engine()
    assert (answer["think_ns"], answer["think_max_ns"]) == (0, 5 * MS)
    assert loop.sentence() == "closed loop of 2 clients, thinking 0ns to 5ms, at most 10 requests"
    assert checks.check(yamlio.load(json.dumps(model.resolved(file)), "again")) == file


def test_what_parameters_come_to() -> None:
    event = {
        "value": "{{ answer.n }}",
        "within": 'it is "{{answer.t}}", {{answers.a.b}}',
        "text": "{{text answer}}",
        "deep": [{"all": "{{answer}}"}, 1, None, True],
        "not {{answer}}": "{{{{ {{number}} {",
        "escaped": "{{{{answer}} {{answer}} {{{answer}}}",
        "alone": "{{{{answer}}",
    }
    assert chains.event_template(event) == (
        '{"value": {{json answer.n}}, '
        '"within": "it is \\"{{text answer.t}}\\", {{text answers.a.b}}", '
        '"text": "{{text answer}}", '
        '"deep": [{"all": {{json answer}}}, 1, null, true], '
        '"not {{{{answer}}": "{{{{ {{{{number}} {", '
        '"escaped": "{{{{answer}} {{text answer}} {{{text answer}}}", '
        '"alone": "{{{{answer}}"}'
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text('a{} "\\é\n'),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("k{"), inner),
        max_leaves=10,
    )
)
def test_an_event_without_references_or_escapes_is_sent_as_it_is(value: object) -> None:
    assume(not chains.has_braces(value))
    template = chains.event_template({"value": value})
    assert json.loads(template.replace("{{{{", "{{")) == {"value": value}
