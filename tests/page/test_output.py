"""What functions printed, by the id of the request, and ``uncia logs --output``."""

import json
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from serving import Serving

PRINTS = """
def handler(event, context):
    print("first", context.aws_request_id)
    print("\\x1b[31mred")
    if event.get("fails"):
        raise ValueError("it was asked to")
"""
BROKEN = "print('imported'); raise RuntimeError('no')\n"


@pytest.fixture(scope="module")
def printing(start_serving: Callable[..., Serving]) -> Serving:
    served = start_serving()
    served.create("prints", PRINTS)
    served.create("broken", BROKEN)
    return served


def invoke(served: Serving, name: str, event: Any = None) -> str:
    answer = served.client.invoke(FunctionName=name, Payload=json.dumps(event or {}).encode())
    return str(answer["ResponseMetadata"]["HTTPHeaders"]["x-amzn-requestid"])


def outputs(served: Serving, query: str) -> list[dict[str, Any]]:
    return list(json.load(served.get(f"/uncia/v1/output?{query}")))


def test_the_output_of_an_invocation_is_found_by_its_request(printing: Serving) -> None:
    first = invoke(printing, "prints")
    failed = invoke(printing, "prints", {"fails": True})
    (entry,) = outputs(printing, f"request={first}")
    assert entry["output"].startswith(f"first {first}\n\x1b[31mred\n")
    assert (entry["function"], entry["outcome"], entry["attempt"]) == ("prints", "ok", 1)
    assert entry["instance"]
    assert entry["ended"] > 0
    (entry,) = outputs(printing, f"request={failed}")
    assert f"first {failed}" in entry["output"]
    assert entry["outcome"] == "function_error"
    newest = outputs(printing, "function=prints&limit=1")
    assert [entry["request_id"] for entry in newest] == [failed]
    assert outputs(printing, "function=none") == []
    for limit in ("0", "201", "x"):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            outputs(printing, f"limit={limit}")


def test_what_a_start_that_failed_printed_is_kept(printing: Serving) -> None:
    request_id = invoke(printing, "broken")
    (entry,) = outputs(printing, f"request={request_id}")
    assert "imported" in entry["output"]
    assert entry["outcome"] == "function_error"


def test_the_command_shows_it_below_the_invocation(
    printing: Serving, command: Callable[..., tuple[int, str, str]]
) -> None:
    request_id = invoke(printing, "prints")
    address = ("--endpoint", printing.address)
    code, out, _ = command("logs", "prints", "--last", "1", "--output", *address)
    assert code == 0
    line, *below = out.splitlines()
    assert line.split()[1] == "prints"
    assert [text.strip() for text in below[:2]] == [f"| first {request_id}", "| \ufffd[31mred"]
    _, out, _ = command("logs", "prints", "--last", "1", "--output", "--json", *address)
    entries = [json.loads(text) for text in out.splitlines()]
    assert [entry["event"] for entry in entries] == ["invocation", "output"]
    assert entries[1]["request_id"] == request_id


def test_outputs_are_private_and_survive_the_platform(
    start_serving: Callable[..., Serving],
) -> None:
    served = start_serving()
    served.create("prints", PRINTS)
    request_id = invoke(served, "prints")
    arguments = served.process.args
    assert isinstance(arguments, list)
    state = arguments[arguments.index("--state") + 1]
    served.stop()
    folder = Path(state) / "output"
    modes = [folder.stat().st_mode & 0o777, (folder / "newer.jsonl").stat().st_mode & 0o777]
    assert modes == [0o700, 0o600]
    again = start_serving("--state", state)
    assert [entry["request_id"] for entry in outputs(again, "")] == [request_id]
    again.stop()
