"""The experiment file: mistakes are told with file, line, key and what is allowed."""

from pathlib import Path

import pytest
import yaml

from uncia import yamlio
from uncia.errors import UnciaError
from uncia.experiment import checks, files, model, simulation, sweep
from uncia.experiment.planning import plan
from uncia.experiment.sources import Sources
from uncia.paths import data
from uncia.settings import RUNTIMES
from uncia.suites import locality
from uncia.tariffs.catalogue import resolve
from uncia.units import MIB, NS_PER_S

FILE = """\
name: sample
seed: 7
platform:
  kind: embedded
  keep_alive: 5min
functions:
  hello:
    source: hello
    memory: 1769MB
  aes:
    source: pyaes
    parameters: {iterations: 3}
experiments:
  warm:
    function: hello
    arrivals: {kind: poisson, rate: 100/s, duration: 10s}
    warmup: {kind: burst, sizes: [4]}
    expect: {throttled: at most 1%}
  aes:
    function: aes
    arrivals: {kind: constant, rate: 6/min, duration: 30s}
    parameters: {length: 64B}
    sweep: {memory: [128MB, 1GB]}
  mixed:
    wait: 1s
    mix:
      - function: hello
        arrivals: {kind: burst, sizes: [1, 10], bursts: 3, interval: 2s}
        start: 500ms
      - function: hello
        arrivals: {kind: constant, rate: 5/s, duration: 1s}
        settings: {memory: 256MB, keep_alive: 100ms}
"""


def read(text: str, tmp_path: Path) -> tuple[model.ExperimentFile, Sources]:
    path = tmp_path / "sample.yaml"
    path.write_text(text, encoding="utf-8")
    file, document = files.load(path)
    return file, Sources(document, tmp_path)


def refused(text: str, tmp_path: Path) -> str:
    with pytest.raises(UnciaError) as caught:
        plan(*read(text, tmp_path))
    return str(caught.value).replace(str(tmp_path) + "/", "")


def test_the_plan_of_a_file(tmp_path: Path) -> None:
    planned = plan(*read(FILE, tmp_path))
    assert [experiment.name for experiment in planned.experiments] == [
        "warm.warmup",
        "warm",
        "aes-128",
        "aes-1024",
        "mixed",
    ]
    warmup, warm, aes, _, mixed = planned.experiments
    assert warmup.warmup_of == "warm"
    assert warmup.streams[0].deployment == warm.streams[0].deployment == "hello"
    assert (warmup.expected_requests(), warm.expected_requests()) == (4, 1000)
    assert aes.streams[0].event == {"length": 64, "iterations": 3}
    assert planned.deployments["aes-aes-128"].function.memory == 128 * MIB
    assert mixed.wait_ns == NS_PER_S
    assert mixed.expected_requests() == 1 + 10 + 1 + 5
    assert mixed.span_ns() == 4_500_000_000
    assert [stream.deployment for stream in mixed.streams] == ["hello", "hello-mixed-1"]
    assert planned.deployments["hello-mixed-1"].function.memory == 256 * MIB


def test_two_streams_of_one_function_do_not_send_in_lock_step(tmp_path: Path) -> None:
    mixed = plan(*read(FILE, tmp_path), only=["mixed"]).experiments[0]
    assert len({stream.label for stream in mixed.streams}) == 2


def test_only_takes_experiments_and_members_of_sweeps(tmp_path: Path) -> None:
    file, sources = read(FILE, tmp_path)
    names = [
        experiment.name for experiment in plan(file, sources, ["aes-1024", "warm"]).experiments
    ]
    assert names == ["warm.warmup", "warm", "aes-1024"]
    assert list(plan(file, sources, ["aes"]).deployments) == ["aes-aes-128", "aes-aes-1024"]
    with pytest.raises(UnciaError, match="no experiment 'aes-256'"):
        plan(file, sources, ["aes-256"])


def test_a_deployment_goes_after_its_last_use(tmp_path: Path) -> None:
    planned = plan(*read(FILE, tmp_path))
    assert planned.last_use() == {
        "hello": 4,
        "aes-aes-128": 2,
        "aes-aes-1024": 3,
        "hello-mixed-1": 4,
    }


def test_the_resolved_file_reads_back_as_the_same(tmp_path: Path) -> None:
    file, _ = read(FILE, tmp_path)
    text = yaml.safe_dump(model.resolved(file), sort_keys=False)
    assert checks.check(yamlio.load(text)) == file


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "    memory: 1769MB",
            "    memroy: 1769MB",
            "sample.yaml:9: functions.hello.memroy: unknown key",
        ),
        (
            "memory: 1769MB",
            "memory: 1769",
            "sample.yaml:9: functions.hello.memory: 1769 has no unit",
        ),
        ("memory: 1769MB", "memory: 1769mb", "is not a size: write a number and one of B, KB"),
        (
            "rate: 100/s",
            "rate: 100",
            "sample.yaml:16: experiments.warm.arrivals.rate: 100 has no unit",
        ),
        (
            "duration: 10s",
            "duration: 10 seconds",
            "sample.yaml:16: experiments.warm.arrivals.duration",
        ),
        ("kind: poisson", "kind: poison", "did you mean poisson? (allowed: burst, constant,"),
        (
            "kind: embedded",
            "kind: lambada",
            "platform.kind: 'lambada' is not known (allowed: docker,",
        ),
        (
            "kind: embedded",
            "kind: embedded\n  precedence: maybe",
            "platform.precedence: 'maybe' is not known (allowed: true, false)",
        ),
        (
            "source: pyaes",
            "source: pyase",
            "sample.yaml:11: functions.aes.source: there is no function",
        ),
        (
            "function: aes",
            "function: ase",
            "sample.yaml:20: experiments.aes.function: there is no function 'ase'",
        ),
        ("{iterations: 3}", "{iteration: 3}", "has no parameter 'iteration'"),
        ("{length: 64B}", "{length: 64}", "experiments.aes.parameters: parameter length of pyaes"),
        (
            "at most 1%",
            "some",
            "sample.yaml:18: experiments.warm.expect.throttled: 'some' is not a bound",
        ),
        ("throttled:", "throtled:", "did you mean throttled?"),
        ("bursts: 3, interval: 2s", "bursts: 3", "3 bursts need an interval"),
        ("seed: 7", "seed: -7", "sample.yaml:2: seed"),
        ("seed: 7", "seed: seven", "sample.yaml:2: seed"),
        ("  warm:\n", "  warm it:\n", "is not a name"),
        ("    memory: 1769MB", "    runtime: bash", "does not exist in 'bash'"),
        ("sweep: {memory: [128MB, 1GB]}", "sweep: {memory: []}", "exactly one axis"),
        ("[128MB, 1GB]", "[128MB, 128MB]", "each value once"),
        ("    wait: 1s\n", "    wait: 1s\n    function: hello\n", "with a mix, function belong"),
    ],
)
def test_mistakes_are_told_with_their_place(
    before: str, after: str, message: str, tmp_path: Path
) -> None:
    assert before in FILE
    assert message in refused(FILE.replace(before, after, 1), tmp_path)


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = FILE.replace("memory: 1769MB", "memory: 1").replace("duration: 30s", "duration: 30")
    message = refused(text, tmp_path)
    assert "sample.yaml:9" in message
    assert "sample.yaml:21" in message


def test_a_setting_that_the_platform_would_ignore_is_an_error(tmp_path: Path) -> None:
    text = """\
name: web
seed: 1
platform: {kind: http}
functions:
  page:
    url: http://127.0.0.1:8080/
    timeout: 5s
experiments:
  warm:
    function: page
    arrivals: {kind: constant, rate: 1/s, duration: 1s}
"""
    assert "web" in text
    assert (
        "sample.yaml:7: functions.page.timeout: the platform http has no such setting"
        in refused(text, tmp_path)
    )
    assert plan(*read(text.replace("    timeout: 5s\n", ""), tmp_path)).platform == "http"


def test_a_kind_of_start_that_does_not_fit_the_runtime_is_an_error(tmp_path: Path) -> None:
    of_function = FILE.replace("    memory: 1769MB", "    runtime: node\n    start_from: zygote")
    sentence = "functions.hello.start_from: no function in node is started from 'zygote' (allowed: "
    assert f"sample.yaml:10: {sentence}fresh, prepared, pool)" in refused(of_function, tmp_path)
    of_experiment = FILE.replace("{length: 64B}", "{length: 64B}\n    settings: {start_from: pool}")
    sentence = "experiments.aes.settings.start_from: no function in python is started from 'pool'"
    if "pool" not in RUNTIMES["python"].start_from:
        assert f"sample.yaml:23: {sentence}" in refused(of_experiment, tmp_path)
    assert plan(*read(of_function.replace("zygote", "pool"), tmp_path))
    assert plan(*read(of_experiment.replace("pool", "zygote"), tmp_path))


def test_a_platform_that_deploys_needs_a_source(tmp_path: Path) -> None:
    text = FILE.replace("    source: hello\n    memory: 1769MB", "    url: http://127.0.0.1/")
    assert "sample.yaml:7: functions.hello: embedded deploys functions" in refused(text, tmp_path)


def test_two_experiments_of_one_name_are_refused(tmp_path: Path) -> None:
    text = FILE.replace("  mixed:\n    wait: 1s\n", "  aes-128:\n    wait: 1s\n")
    assert "two experiments come to the name 'aes-128'" in refused(text, tmp_path)


def test_a_file_that_is_not_there_and_one_that_is_empty(tmp_path: Path) -> None:
    with pytest.raises(UnciaError, match="no such file"):
        files.load(tmp_path / "none.yaml")
    assert "empty" in refused("", tmp_path)


@pytest.mark.parametrize(
    "path",
    # Functions of experiments lie beside them, in folders of their own.
    sorted(path for path in data("experiments").rglob("*.yaml") if path.stem != "function"),
    ids=lambda path: path.stem,
)
def test_every_shipped_experiment_is_right(path: Path) -> None:
    document = yamlio.load(path)
    if "charges" in document.data:
        assert resolve([str(path)])
        return
    if "cluster" in document.data:
        # A simulation, or a sweep of some.
        points = sweep.points(document) if sweep.KEY in document.data else [simulation.load(path)]
        assert points
        return
    if locality.is_locality(document):
        assert locality.experiments(document)
        return
    if {"trace", "emulation"} & document.data.keys():
        return  # of a suite, which checks it
    file, document = files.load(path)
    assert plan(file, Sources(document, path.parent)).experiments


def test_the_schema_knows_the_words_of_the_file() -> None:
    schema = model.json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(model.ExperimentFile.model_fields)
    text = str(schema)
    assert all(word in text for word in ("poisson", "embedded", "transport_error"))


def test_a_folder_has_rows_enough_for_a_gate_to_judge_its_medians(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("def handler(event, context): ...", encoding="utf-8")
    file, document = files.load(tmp_path)
    planned = plan(file, Sources(document, tmp_path.resolve().parent))
    rows = {experiment.name: experiment.expected_requests() for experiment in planned.experiments}
    assert rows["warm"] >= 6
    assert rows["cold"] >= 6


def test_what_the_platform_leaves_out_is_said_to_readers(tmp_path: Path) -> None:
    def warnings(text: str) -> list[str]:
        file, sources = read(text, tmp_path)
        return [it for it in plan(file, sources).warnings if "metering" in it or "log:" in it]

    assert warnings(FILE) == []
    (log,) = warnings(FILE.replace("keep_alive: 5min", "log: memory"))
    assert "rows would be missing" in log
    (all_of_them,) = warnings(FILE.replace("keep_alive: 5min", "metering: false"))
    assert all_of_them.startswith("What aes, hello used was not measured")
    (hello,) = warnings(FILE.replace("memory: 1769MB", "metering: false"))
    assert hello.startswith("What hello used was not measured")
    changed = FILE.replace("settings: {memory: 256MB", "settings: {metering: false, memory: 256MB")
    assert warnings(changed) == [hello]
