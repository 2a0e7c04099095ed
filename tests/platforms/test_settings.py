"""Settings are declared once, by the engine; what Python and the pages say of them follows."""

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from uncia import engine, settings, yamlio
from uncia.cli import build
from uncia.errors import UnciaError
from uncia.experiment.model import Settings
from uncia.platforms.embedded import Options
from uncia.settings import FUNCTION_SETTINGS, PLATFORM_SETTINGS
from uncia.settings.markdown import update

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def check(form: type[Settings] | type[Options], text: str) -> Settings | Options:
    return yamlio.validate(form, yamlio.load(text))


def test_the_copy_of_the_engine_s_settings_is_current() -> None:
    copy = Path(settings.__file__).with_name("settings.json").read_text(encoding="utf-8")
    command = [str(engine.binary()), "schema", "settings"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert copy == printed, "uncia-engine schema settings > python/uncia/settings/settings.json"


@pytest.mark.parametrize("page", ["lambda-api.md", "experiment-file.md"])
def test_the_tables_of_the_pages_are_up_to_date(page: str) -> None:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    assert "<!-- settings: " in text
    assert text == update(text), "python -m uncia.settings.markdown docs/reference/*.md"


def test_every_setting_is_a_key_an_option_and_a_tag() -> None:
    assert set(FUNCTION_SETTINGS) <= set(Settings.model_fields)
    assert set(Options.model_fields) == {"kind", *PLATFORM_SETTINGS}
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
        ("preemptible: 1", "preemptible: must be a valid boolean, not 1"),
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
    finer = check(Options, "{kind: embedded, stop_grace: 1us}")
    assert isinstance(finer, Options)
    with pytest.raises(UnciaError, match=r"platform.stop_grace must be a whole number of milli"):
        finer.engine()


def test_the_options_of_serve_are_checked_like_the_keys() -> None:
    for option, value, sentence in (
        ("--period", "2s", "--period: must be between 1ms and 1s, not 2s"),
        ("--network", "internet", "--network: Input should be 'none', 'platform' or 'host'"),
    ):
        result = CliRunner().invoke(build(), ["serve", option, value])
        assert str(result.exception) == sentence
    assert CliRunner().invoke(build(), ["serve", "--pids-max", "1"]).exit_code == 2
