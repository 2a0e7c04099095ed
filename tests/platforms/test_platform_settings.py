"""Settings are declared once, by the engine; what Python and the pages say of them follows."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from uncia import engine, settings, yamlio
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.experiment.model import Settings
from uncia.platforms.embedded import Options
from uncia.settings import FUNCTION_SETTINGS, PLATFORM_SETTINGS, POLICIES
from uncia.settings.markdown import update

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def check(form: type[Settings] | type[Options], text: str) -> Settings | Options:
    return yamlio.validate(form, yamlio.load(text))


@pytest.mark.parametrize("part", ["settings", "policies", "runtimes"])
def test_the_copies_of_what_the_engine_declares_are_current(part: str) -> None:
    copy = Path(settings.__file__).with_name(f"{part}.json").read_text(encoding="utf-8")
    command = [str(engine.binary()), "schema", part]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert copy == printed, "make settings"


@pytest.mark.parametrize("page", ["lambda-api.md", "experiment-file.md", "engine-config.md"])
def test_the_tables_of_the_pages_are_up_to_date(page: str) -> None:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    assert "<!-- settings: " in text
    assert text == update(text), "python -m uncia.settings.markdown docs/reference/*.md"


def test_the_page_of_the_configuration_has_every_key_of_the_engine(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"?": 1}')
    command = [str(engine.binary()), "serve", "--state", str(tmp_path / "s"), "--config", config]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert refused.returncode == 2
    known = re.findall(r"`(\w+)`", refused.stderr.partition("expected one of")[2])
    assert {"keep_alive_ms", "policies", "runtimes", "allowed_hosts"} <= set(known)
    page = (REFERENCE / "engine-config.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == sorted(known)
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert set(json.loads(example)) <= set(known)


def test_the_page_of_the_policies_has_every_policy() -> None:
    page = (REFERENCE / "policies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| *(?:`([\w-]+)`)? *\| *(\*\*)?`([\w-]+)`", page, re.MULTILINE)
    result: dict[str, dict[str, bool]] = {}
    choice = ""
    for named, bold, policy in rows:
        choice = named or choice
        result.setdefault(choice, {})[policy] = bool(bold)
    declared = {
        choice.name: {policy: policy == choice.default for policy in choice.policies}
        for choice in POLICIES.values()
    }
    assert {name: result.get(name) for name in declared} == declared


def test_every_setting_is_a_key_an_option_and_a_tag() -> None:
    assert set(FUNCTION_SETTINGS) <= set(Settings.model_fields)
    assert set(Options.model_fields) == {"kind", "images", "like", "policies", *PLATFORM_SETTINGS}
    for setting in FUNCTION_SETTINGS.values():
        value = setting.choices[0] if setting.choices else True
        if setting.minimum is not None:
            value = setting.from_engine(setting.minimum)
        (tag,) = settings.tags({setting.name: value}, "f")
        assert tag == setting.tag


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("keep_alive: 5", "keep_alive: 5 has no unit: a duration is written with one of"),
        ("keep_alive: 5vCPU", "keep_alive: '5vCPU' is not a duration"),
        ("keep_alives: 5s", "keep_alives: unknown key, did you mean keep_alive?"),
        ("period: 2s", "period: must be between 1ms and 1s, not 2s"),
        ("cpu: 0vCPU", "cpu: must be at least 0.000001vCPU, not 0vCPU"),
        ("max_instances: -1", "max_instances: must be greater than or equal to 0, not -1"),
        ("network: internet", "network: 'internet' is not known (allowed: none, platform, host)"),
        ("preemptible: 1", "preemptible: 1 is not known (allowed: true, false)"),
    ],
)
def test_wrong_settings_of_a_function_are_sentences(text: str, sentence: str) -> None:
    with pytest.raises(UnciaError) as raised:
        check(Settings, text)
    assert sentence in raised.value.message


def test_the_platform_s_configuration_has_the_engine_s_keys_and_units() -> None:
    options = check(
        Options, "{kind: embedded, keep_alive: 2s, network: host, pids_max: 9, period: 5ms}"
    )
    assert isinstance(options, Options)
    config = options.engine()
    del config["runtimes"]
    assert config == {
        "keep_alive_ms": 2_000,
        "default_network": "host",
        "pids_max": 9,
        "period_us": 5_000,
    }
    with pytest.raises(UnciaError, match="stop_grace: 1us is not a whole number of milliseconds"):
        check(Options, "{kind: embedded, stop_grace: 1us}")


def test_policies_are_chosen_by_name() -> None:
    options = check(
        Options, "{kind: embedded, policies: {order: shortest-job-first, binding: late}}"
    )
    assert isinstance(options, Options)
    policies = options.engine()["policies"]
    assert policies == {"order": "shortest-job-first", "binding": "late"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "policies: {order: x}",
            "policies.order: 'x' is not known (allowed: backfill, first-come,",
        ),
        ("policies: {ordre: first-come}", "policies.ordre: unknown key, did you mean order?"),
        ("{binding: late, policies: {binding: early}}", "give only one of them"),
    ],
)
def test_wrong_policies_are_sentences(text: str, sentence: str) -> None:
    document = yamlio.load(text)
    document.data["kind"] = "embedded"
    with pytest.raises(UnciaError) as raised:
        yamlio.validate(Options, document)
    assert sentence in raised.value.message


def test_the_options_of_serve_are_checked_like_the_keys() -> None:
    choices = ", ".join(POLICIES)
    for option, value, sentence in (
        ("--period", "2s", "--period: must be between 1ms and 1s, not 2s"),
        ("--network", "internet", "--network: 'internet' is not 'none', 'platform' or 'host'"),
        ("--policy", "order", "--policy: 'order' is not CHOICE=POLICY, such as order=first-come"),
        ("--policy", "luck=x", f"--policy: no policy decides 'luck' (allowed: {choices})"),
        (
            "--policy",
            "binding=x",
            "--policy: no binding policy is named 'x' (allowed: early, late)",
        ),
    ):
        result = CliRunner().invoke(build(), ["serve", option, value])
        assert str(result.exception) == sentence
    assert CliRunner().invoke(build(), ["serve", "--pids-max", "1"]).exit_code == 2
    order = ["--policy", "order=first-come"]
    result = CliRunner().invoke(build(), ["serve", *order, *order])
    assert str(result.exception) == "--policy: order is given twice"
    binding = ["--binding", "late", "--policy", "binding=late"]
    result = CliRunner().invoke(build(), ["serve", *binding])
    assert "give only one of them" in str(result.exception)
