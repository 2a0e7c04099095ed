"""What `relay` hands on and takes, by itself; with a store: tests/services."""

import base64
import hashlib
from typing import Any

import pytest

RUNTIMES = ["python", "go", "node"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_payload_is_taken_whole_and_checked(runtime: str, call: Any) -> None:
    (first,) = call("relay", {"size": 3_000}, runtime=runtime)
    by, sent, size, digest, content = first["answer"]["payload"].split(" ")
    data = base64.b64decode(content)
    assert (by, int(size), len(data)) == ("inline", 3_000, 3_000)
    assert digest == hashlib.sha256(data).hexdigest() == first["answer"]["sha256"]
    assert len(set(data)) > 200
    payload = first["answer"]["payload"]
    spoilt = f"{by} {sent} {size} {digest} {base64.b64encode(bytes(3_000)).decode()}"
    short = f"{by} {sent} {size} {digest} {base64.b64encode(data[1:]).decode()}"
    taken, *refused = call(
        "relay",
        {"payload": payload, "size": 0},
        {"payload": spoilt},
        {"payload": short},
        {"payload": "hello"},
        {"by": "mail"},
        runtime=runtime,
    )
    answer = taken["answer"]
    assert (answer["taken"], answer["size"], answer["payload"]) == (3_000, 0, "")
    ((name, start, end),) = answer["uncia"]["spans"]
    assert (name, start) == ("transfer", int(sent))
    # A busy machine takes any time, and yet no clock runs backwards here.
    about = answer["uncia"]
    assert int(sent) < about["handler_start_ns"] <= end <= about["handler_end_ns"]
    messages = [reply["message"] for reply in refused]
    assert "its SHA-256 is" in messages[0]
    assert "it has 2999 bytes, not 3000 as was sent" in messages[1]
    assert "this is no payload of a relay; hand on {{answer.payload}}" in messages[2]
    assert "is not one of inline, store, size" in messages[3]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_by_size_means_inline_up_to_the_threshold(runtime: str, call: Any) -> None:
    at, beyond = call(
        "relay",
        {"size": 2_048, "by": "size", "threshold": 2_048},
        {"size": 2_049, "by": "size", "threshold": 2_048},
        runtime=runtime,
    )
    assert at["answer"]["payload"].startswith("inline ")
    assert "reaches no store: name it in its reach ([store])" in beyond["message"]
