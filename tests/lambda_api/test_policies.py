"""Scaling, retention and eviction by other policies than Lambda's, on real instances."""

import concurrent.futures
from typing import Any

from .conftest import Platform, Serve
from .test_serving import log, wait_for

ECHO = "def handler(event, context):\n    return event['n']\n"


def invoke_at_once(platform: Platform, requests: int) -> list[Any]:
    with concurrent.futures.ThreadPoolExecutor(requests) as threads:
        return list(threads.map(lambda n: platform.invoke("f", {"n": n})[1], range(requests)))


def test_requests_queue_for_one_instance(serve: Serve) -> None:
    platform = serve({"policies": {"scaling": "queue-per-instance"}, "queue_length": 20})
    platform.create("f", ECHO)
    assert invoke_at_once(platform, 12) == list(range(12))
    rows = log(platform)
    assert len({row["instance"] for row in rows}) == 1
    assert [row["start"] for row in rows].count("cold") == 1


def test_instances_beyond_the_target_are_stopped(serve: Serve) -> None:
    # Far quicker than by default, so that the test need not last; nothing depends on how quick.
    platform = serve(
        {
            "policies": {"scaling": "concurrency-target"},
            "scaling_window_ms": 300,
            "scaling_tick_ms": 20,
            "scale_to_zero_delay_ms": 100,
        }
    )
    platform.create("f", ECHO)
    assert invoke_at_once(platform, 12) == list(range(12))

    def reasons() -> list[str | None]:
        return [row["end_reason"] for row in log(platform, "instances")]

    wait_for(lambda: reasons() and None not in reasons())
    assert set(reasons()) == {"scaled_down"}
    # From none, without a request too many.
    assert platform.invoke("f", {"n": 1})[1] == 1


def test_an_instance_is_not_kept_where_it_takes_the_last_room(serve: Serve) -> None:
    opportunistic = {"policies": {"retention": "opportunistic"}, "keep_alive_ms": 3_600_000}
    platform = serve({**opportunistic, "max_instances": 1})
    platform.create("f", ECHO)
    platform.invoke("f", {"n": 1})
    wait_for(lambda: [row["end_reason"] for row in log(platform, "instances")] == ["keep_alive"])


def test_what_costs_least_to_start_again_makes_room(serve: Serve) -> None:
    platform = serve({"policies": {"eviction": "greedy-dual"}, "max_instances": 2})
    # However long each start takes on a busy machine, g's loss costs less.
    for name, memory in [("f", 128), ("g", 10_240), ("h", 128)]:
        platform.create(name, ECHO, MemorySize=memory)
    for n in range(50):
        platform.invoke("f", {"n": n})
    platform.invoke("g", {"n": 0})
    platform.invoke("h", {"n": 0})

    def ended() -> dict[str, str]:
        rows = log(platform, "instances")
        return {row["function"]: row["end_reason"] for row in rows if row["end_reason"]}

    # Under least-recently-used it would be f's.
    wait_for(ended)
    assert ended() == {"g": "evicted"}
