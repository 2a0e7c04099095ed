"""Hints: what requests say of those to come, by boto3, by URL and by event; and what that costs."""

import base64
import json
import urllib.request
from typing import Any

import pytest

from .conftest import Platform, Serve
from .test_serving import wait_for

ECHO = "def handler(event, context):\n    return event.get('headers', {})\n"
YEAR = 366 * 24


def said(text: object) -> str:
    """A client context with a hint."""
    return base64.b64encode(json.dumps({"custom": {"x-uncia-next": text}}).encode()).decode()


def answer_to(platform: Platform, hint: object, **arguments: Any) -> str | None:
    answer, _ = platform.invoke("f", ClientContext=said(hint), **arguments)
    headers: dict[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
    return headers.get("x-uncia-hint")


def started(platform: Platform) -> list[dict[str, Any]]:
    """The instances that have started, gone or not."""
    import pyarrow as pa

    with urllib.request.urlopen(f"{platform.url}/uncia/v1/instances") as answer:
        table = pa.ipc.open_stream(answer.read()).read_all()
    return [row for row in table.to_pylist() if row["start"] is not None]


def rows(platform: Platform) -> list[dict[str, Any]]:
    """The instances that are gone."""
    return [row for row in started(platform) if row["ended"] is not None]


@pytest.fixture
def hinted(serve: Serve) -> Platform:
    """A platform that reads hints, and a function that keeps nothing but for them."""
    platform = serve({"policies": {"retention": "hints"}})
    platform.create("f", ECHO, Tags={"uncia:hint-instances": "2", "uncia:keep-alive-ms": "0"})
    return platform


def test_what_is_said_to_come_finds_an_instance_and_is_accounted_for(hinted: Platform) -> None:
    platform = hinted
    assert answer_to(platform, "in=30s, within=29s, count=7") == "taken; count=2"
    # The one that is started for the hint idles on its account, whatever else happens.
    wait_for(lambda: len(started(platform)) > 1)
    wait_for(lambda: platform.headers("f")["x-uncia-start"] in ("warm", "thawed"))
    platform.client.delete_function(FunctionName="f")
    wait_for(lambda: sum(row["hint_idle"] for row in rows(platform)) > 0)
    for row in rows(platform):
        idle = sum(interval["end"] - interval["start"] for interval in row["idle"] or ())
        assert 0 <= row["hint_idle"] <= idle, row


def test_hints_that_cannot_be_meant_are_answered_with_the_reason(hinted: Platform) -> None:
    for hint, why in (
        ("in=soon", "in is a time"),
        ("in=-5s", "in the past"),
        (f"in={YEAR}h", "more than 86400 s ahead"),
        ("in=1s, count=many", "count is a whole number"),
        ("in=1s, count=99999999999", "count is a whole number"),
        (5, "5"),
        ({"in": 5}, "in="),
        ("x" * 2_000, "256 bytes"),
    ):
        text = answer_to(hinted, hint) or ""
        assert text.startswith("refused: "), (hint, text)
        assert why in text, (hint, text)
    assert answer_to(hinted, "in=9m, count=1000000") == "taken; count=2"
    assert answer_to(hinted, "") is None
    with urllib.request.urlopen(f"{hinted.url}/metrics") as answer:
        metrics = answer.read().decode()
    assert 'uncia_hints_total{result="taken"} 1\n' in metrics
    assert 'uncia_hints_total{result="refused"} 8\n' in metrics


def test_by_url_the_header_is_the_platforms(hinted: Platform) -> None:
    url = hinted.client.create_function_url_config(FunctionName="f", AuthType="NONE")["FunctionUrl"]
    request = urllib.request.Request(url, headers={"x-uncia-next": "in=60s", "x-own": "kept"})
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["x-uncia-hint"] == "taken; count=1"
        seen = json.loads(answer.read())
    assert {"x-own", "x-uncia-next"} & set(seen) == {"x-own"}


def test_events_say_it_too_and_what_is_turned_away_does_not(hinted: Platform) -> None:
    assert answer_to(hinted, "in=60s", InvocationType="Event") == "taken; count=1"
    assert answer_to(hinted, "in=60s", InvocationType="DryRun") is None
    hinted.client.put_function_concurrency(FunctionName="f", ReservedConcurrentExecutions=0)
    with pytest.raises(hinted.client.exceptions.TooManyRequestsException) as refused:
        answer_to(hinted, "in=60s")
    headers = refused.value.response["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-uncia-hint"] == "ignored: its request was turned away"


def test_without_the_policy_or_a_budget_hints_are_ignored(serve: Serve) -> None:
    platform = serve()
    platform.create("f", Tags={"uncia:hint-instances": "2"})
    text = answer_to(platform, "in=1s")
    assert text == "ignored: no policy here reads hints, but for retention=hints"
    platform = serve({"policies": {"retention": "hints"}}, "other")
    platform.create("f")
    text = answer_to(platform, "in=1s")
    assert text is not None
    assert "hint_instances is 0" in text
