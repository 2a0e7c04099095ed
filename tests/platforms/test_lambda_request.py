"""What is said in Lambda's own words and what travels as tags; what cannot be said is refused."""

import pytest

from uncia.errors import UnciaError
from uncia.experiment.model import Settings
from uncia.platforms import ADAPTERS, FunctionSpec, adapter
from uncia.platforms.lambda_api import create_request
from uncia.units import MIB, NS_PER_MS, NS_PER_S

ROLE = "arn:aws:iam::000000000000:role/uncia"


def spec(**given: object) -> FunctionSpec:
    return FunctionSpec(
        **{"name": "f", "package": b"zip", "runtime": "python", "handler": "a.b", **given}  # type: ignore[arg-type]
    )


def test_the_request_in_lambda_s_words() -> None:
    request = create_request(
        spec(memory=1769 * MIB, timeout=3 * NS_PER_S, environment={"AB": "c"}),
        ROLE,
        {"python": "python3.11"},
    )
    assert request == {
        "FunctionName": "f",
        "Runtime": "python3.11",
        "Role": ROLE,
        "Handler": "a.b",
        "Code": {"ZipFile": b"zip"},
        "Tags": {},
        "MemorySize": 1769,
        "Timeout": 3,
        "Environment": {"Variables": {"AB": "c"}},
    }


def test_what_is_left_out_is_the_platform_s_choice() -> None:
    request = create_request(spec(runtime="python3.9"), ROLE)
    assert request["Runtime"] == "python3.9"
    assert {"MemorySize", "Timeout", "Environment"} & set(request) == set()


def test_the_rest_travels_as_tags() -> None:
    wanted = spec(
        settings={
            "keep_alive": 5 * NS_PER_S,
            "pause_after": 0,
            "keep_alive_cpu": "scale-down",
            "period": 100 * NS_PER_MS,
            "enforcement": "event-driven",
            "network": "host",
            "init_throttled": True,
            "max_instances": 7,
            "cpu": 500_000,
        }
    )
    assert create_request(wanted, ROLE)["Tags"] == {
        "uncia:keep-alive-ms": "5000",
        "uncia:pause-after-ms": "0",
        "uncia:keep-alive-cpu": "scale-down",
        "uncia:period-us": "100000",
        "uncia:enforcement": "event-driven",
        "uncia:network": "host",
        "uncia:init-throttled": "true",
        "uncia:max-instances": "7",
        "uncia:cpu-micro": "500000",
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"memory": 128 * MIB + 1}, "not a whole number of MB"),
        ({"timeout": 1500 * NS_PER_MS}, "timeout 1500ms is not a whole number of seconds"),
        ({"settings": {"keep_alive": 1}}, "1ns is not a whole number of milliseconds"),
        ({"settings": {"period": 1500}}, "1500ns is not a whole number of microseconds"),
        ({"package": None}, "no package"),
        ({"memory": 50 * MIB}, "memory 50MB is not between 128MB and 10,240MB, in steps of 1MB"),
        ({"timeout": 901 * NS_PER_S}, "timeout 901s is not between 1s and 900s"),
        ({"environment": {"1A": ""}}, "'1A' is no name of a variable"),
        ({"environment": {"AB": "x" * 4_095}}, "4,097 bytes of variables are more than"),
    ],
)
def test_what_the_api_cannot_say_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UnciaError, match=message):
        create_request(spec(**given), ROLE)


def test_every_adapter_keeps_to_the_form() -> None:
    for kind, module in ADAPTERS.items():
        assert module.Options.model_fields["kind"].annotation.__args__ == (kind,)
        assert set(Settings.model_fields) >= module.CAPABILITIES.settings
        assert callable(module.connect)
        assert callable(module.clean)
    with pytest.raises(UnciaError, match="not a kind of platform"):
        adapter("lambada")
