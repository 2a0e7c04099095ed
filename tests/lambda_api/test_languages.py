"""The function `hello` in every language: packaged, deployed, started cold and metered."""

import shutil
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError
from patience import scaled

from uncia import functions
from uncia.errors import UnciaError
from uncia.settings import LANGUAGES

from .conftest import Platform

HELLO = functions.load("hello")


def deploy(platform: Platform, language: str, **settings: Any) -> str:
    """Create `hello` in a language; its name."""
    runtime = LANGUAGES[language]
    program = (runtime.requirement or "").rstrip(")").rpartition("(")[2]
    if program and shutil.which(program) is None:
        pytest.skip(f"{runtime.requirement} is not installed")
    try:
        made = functions.package(HELLO, language)
    except UnciaError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    name = f"hello-{language}"
    platform.create(
        name,
        Code={"ZipFile": made.read_bytes()},
        Runtime=runtime.identifier,
        Handler=made.handler,
        **settings,
    )
    return name


@pytest.fixture(autouse=True)
def language(request: pytest.FixtureRequest) -> str:
    """The language of the test, whose runtime is built beforehand if that takes long."""
    name: str = request.param
    if name == "java":
        request.getfixturevalue("java")
    return name


every_language = pytest.mark.parametrize("language", HELLO.runtime_names, indirect=True)


@every_language
def test_hello_is_deployed_started_and_metered(language: str, platform: Platform) -> None:
    name = deploy(platform, language, Tags={"uncia:keep-alive-ms": "60000"})
    cold, answer = platform.invoke(name)
    assert functions.check_answer(HELLO, answer) == []
    assert answer["uncia"]["fresh"] is True
    headers = cold["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-uncia-start"] == "cold"
    warm, again = platform.invoke(name, {"any": "event"})
    assert functions.check_answer(HELLO, again) == []
    assert again["uncia"]["fresh"] is False
    assert again["uncia"]["instance"] == answer["uncia"]["instance"]
    headers = warm["ResponseMetadata"]["HTTPHeaders"]
    # Frozen meanwhile, where everything takes long.
    assert headers["x-uncia-start"] in ("warm", "thawed")
    used = int(headers["x-uncia-cpu-user-ns"]) + int(headers["x-uncia-cpu-system-ns"])
    # The function's own account, which begins later and ends earlier, in whole us.
    assert used + 1000 >= again["uncia"]["cpu_ns"] > 0
    assert int(headers["x-uncia-memory-peak"]) > 0


@every_language
def test_hello_starts_from_whatever_its_language_can(language: str, platform: Platform) -> None:
    able = LANGUAGES[language].start_from
    name = deploy(platform, language)
    for kind in ("fresh", "prepared", "pool"):
        tag = {"uncia:start-from": kind}
        function = platform.client.get_function(FunctionName=name)["Configuration"]
        if kind not in able:
            with pytest.raises(ClientError, match=r"only one in .* can be started ahead"):
                platform.client.tag_resource(Resource=function["FunctionArn"], Tags=tag)
            continue
        platform.client.tag_resource(Resource=function["FunctionArn"], Tags=tag)
        deadline = time.monotonic() + scaled(120)
        wanted = {"restored"} if kind == "pool" else {"cold"}
        # A change ends what runs; the first from a pool is fresh.
        while platform.headers(name)["x-uncia-start"] not in wanted:
            assert time.monotonic() < deadline, kind
            platform.client.update_function_configuration(
                FunctionName=name, Environment={"Variables": {"turn": str(time.monotonic_ns())}}
            )
            time.sleep(0.2)
