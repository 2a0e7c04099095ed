"""Lambda's response streaming: the Runtime API's, InvokeWithResponseStream's and function URLs'."""

import base64
import http.client
import json
import shutil
from typing import Any

import pytest
from patience import scaled

from .conftest import Platform
from .test_http_server import ask
from .test_http_streams import asked, rss
from .test_serving import log

# A client of the Runtime API by hand, which the stock one runs by importing it. It sends what
# the event lists, chunk by chunk.
CLIENT = r"""
import base64, http.client, json, os, time

host, port = os.environ["AWS_LAMBDA_RUNTIME_API"].split(":")

while True:
    api = http.client.HTTPConnection(host, int(port))
    api.request("GET", "/2018-06-01/runtime/invocation/next")
    answer = api.getresponse()
    event = json.loads(answer.read())
    request_id = answer.headers["Lambda-Runtime-Aws-Request-Id"]
    event = json.loads(event["body"]) if "rawPath" in event else event
    print("streams", flush=True)
    api.putrequest("POST", "/2018-06-01/runtime/invocation/%s/response" % request_id)
    if event.get("streams", True):
        api.putheader("Lambda-Runtime-Function-Response-Mode", "streaming")
    if "type" in event:
        api.putheader("Content-Type", event["type"])
    api.putheader("Transfer-Encoding", "chunked")
    api.endheaders()
    for piece in event["pieces"]:
        if piece == "exit":
            os._exit(4)
        while piece == "hang":
            time.sleep(1)
        if isinstance(piece, int):
            for _ in range(piece // 65536):
                api.send(b"10000\r\n%s\r\n" % bytes(65536))
        else:
            data = piece.encode()
            api.send(b"%x\r\n%s\r\n" % (len(data), data))
    trailers = b""
    if "error" in event:
        trailers = b"Lambda-Runtime-Function-Error-Type: Function.Broken\r\n"
        error = base64.b64encode(json.dumps(event["error"]).encode())
        trailers += b"Lambda-Runtime-Function-Error-Body: " + error + b"\r\n"
    api.send(b"0\r\n" + trailers + b"\r\n")
    api.getresponse().read()
    api.close()
"""
PRELUDE = json.dumps({"statusCode": 201, "headers": {"X-Own": "1"}, "cookies": ["a=b"]})
INTEGRATION = "application/vnd.awslambda.http-integration-response"


def streamed(platform: Platform, event: Any, **settings: Any) -> tuple[list[bytes], dict[str, Any]]:
    """The pieces of an answer, and what came at its end."""
    answer = platform.client.invoke_with_response_stream(
        FunctionName="f", Payload=json.dumps(event).encode(), **settings
    )
    assert answer["StatusCode"] == 200
    assert answer["ExecutedVersion"] == "$LATEST"
    *pieces, last = answer["EventStream"]
    return [piece["PayloadChunk"]["Payload"] for piece in pieces], last["InvokeComplete"]


def url_of(platform: Platform, **settings: Any) -> str:
    url = platform.client.create_function_url_config(FunctionName="f", AuthType="NONE", **settings)
    return str(url["FunctionUrl"]).removeprefix(f"http://{platform.address}").rstrip("/")


def test_pieces_reach_boto3(platform: Platform) -> None:
    platform.create("f", CLIENT)
    pieces, end = streamed(platform, {"pieces": ["a", "bc"]}, LogType="Tail")
    assert (b"".join(pieces), "ErrorCode" in end) == (b"abc", False)
    assert base64.b64decode(end["LogResult"]) == b"streams\n"
    (row,) = log(platform)
    assert (row["outcome"], row["response_bytes"]) == ("ok", 3)
    pieces, end = streamed(platform, {"pieces": []})
    assert (pieces, end) == ([], {})


def test_a_function_that_does_not_stream_is_one_piece(platform: Platform) -> None:
    platform.create("f", "def handler(event, context):\n    return 1 // event['n']\n")
    assert streamed(platform, {"n": 1}) == ([b"1"], {})
    pieces, end = streamed(platform, {"n": 0})
    assert (pieces, end["ErrorCode"]) == ([], "ZeroDivisionError")
    assert json.loads(end["ErrorDetails"])["errorType"] == "ZeroDivisionError"
    assert [row["outcome"] for row in log(platform)] == ["ok", "function_error"]


@pytest.mark.parametrize(
    ("event", "code", "outcome"),
    [
        ({"pieces": ["first"], "error": {"errorType": "T", "errorMessage": "m"}}, "T", None),
        ({"pieces": ["first", "exit"]}, "Runtime.ExitError", None),
        ({"pieces": ["first", "hang"]}, "Sandbox.Timedout", "timeout"),
        ({"pieces": ["first", 201 * 2**20]}, "Function.ResponseSizeTooLarge", None),
    ],
)
def test_what_goes_wrong_after_the_beginning_is_said_at_the_end(
    platform: Platform, event: Any, code: str, outcome: str | None
) -> None:
    platform.create("f", CLIENT, Timeout=2 if outcome else 50)
    pieces, end = streamed(platform, event)
    assert (pieces[0][:5], end["ErrorCode"]) == (b"first", code)
    (row,) = log(platform)
    assert row["outcome"] == (outcome or "function_error")
    assert row["response_bytes"] == len(b"".join(pieces))


def test_a_large_answer_takes_little_memory(platform: Platform) -> None:
    platform.create("f", CLIENT, MemorySize=1769)
    streamed(platform, {"pieces": []})
    before, size = rss(platform), 50 * 2**20
    pieces, end = streamed(platform, {"pieces": [size]})
    assert (sum(map(len, pieces)), end) == (size, {})
    assert rss(platform) - before < 16 * 2**20
    # Of an answer that is not streamed, Lambda's limit holds.
    _, error = platform.invoke("f", {"pieces": [size]})
    assert error["errorType"] == "Function.ResponseSizeTooLarge"


def test_invoke_gets_a_stream_as_a_whole(platform: Platform) -> None:
    platform.create("f", CLIENT)
    answer = platform.client.invoke(FunctionName="f", Payload=b'{"pieces": ["not", " json"]}')
    assert (answer["Payload"].read(), "FunctionError" in answer) == (b"not json", False)
    error = {"errorType": "T", "errorMessage": "m"}
    answer, message = platform.invoke("f", {"pieces": ["x"], "error": error})
    assert (answer["FunctionError"], message) == ("Unhandled", error)


def test_what_cannot_be_streamed_is_refused(platform: Platform) -> None:
    platform.create("f", CLIENT)
    client = platform.client
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.invoke_with_response_stream(FunctionName="g")
    with pytest.raises(client.exceptions.InvalidParameterValueException, match="DryRun"):
        client.invoke_with_response_stream(FunctionName="f", InvocationType="Event")
    client.put_function_concurrency(FunctionName="f", ReservedConcurrentExecutions=0)
    with pytest.raises(client.exceptions.TooManyRequestsException):
        client.invoke_with_response_stream(FunctionName="f")


def test_a_url_has_a_mode(platform: Platform) -> None:
    platform.create("f", CLIENT)
    client = platform.client
    url = client.create_function_url_config(FunctionName="f", AuthType="NONE")
    assert url["InvokeMode"] == "BUFFERED"
    stream = {"FunctionName": "f", "InvokeMode": "RESPONSE_STREAM"}
    assert client.update_function_url_config(**stream)["InvokeMode"] == "RESPONSE_STREAM"
    client.update_function_url_config(FunctionName="f", AuthType="NONE")
    assert client.get_function_url_config(FunctionName="f")["InvokeMode"] == "RESPONSE_STREAM"
    (listed,) = client.list_function_url_configs(FunctionName="f")["FunctionUrlConfigs"]
    assert listed["InvokeMode"] == "RESPONSE_STREAM"
    body = json.dumps({"AuthType": "NONE", "InvokeMode": "SLOW"}).encode()
    answer, text = ask(platform, "/2021-10-31/functions/f/url", "PUT", body)
    assert (answer.status, b"BUFFERED or RESPONSE_STREAM" in text) == (400, True)


def test_a_url_streams(platform: Platform) -> None:
    platform.create("f", CLIENT, Timeout=3)
    url = url_of(platform, InvokeMode="RESPONSE_STREAM")

    def post(event: Any) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(platform.address, timeout=scaled(60))
        connection.request("POST", f"{url}/", json.dumps(event).encode())
        return connection.getresponse()

    answer = post({"pieces": ["a", "b"], "type": "text/plain"})
    assert (answer.status, answer.headers["content-type"], answer.read()) == (
        200,
        "text/plain",
        b"ab",
    )
    # Status and headers may come in any pieces, and the body before the function's end.
    zeros = "\0" * 8
    pieces = [PRELUDE[:9], PRELUDE[9:] + zeros[:3], zeros[3:] + "body", "hang"]
    answer = post({"pieces": pieces, "type": INTEGRATION})
    assert (answer.status, answer.headers["x-own"]) == (201, "1")
    assert answer.headers["set-cookie"] == "a=b"
    assert answer.read(4) == b"body"
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        answer.read()
    assert log(platform)[-1]["outcome"] == "timeout"
    for broken in ["{" + zeros, json.dumps({"statusCode": 99}) + zeros, "no end"]:
        answer = post({"pieces": [broken], "type": INTEGRATION})
        assert (answer.status, answer.read()) == (502, b'{"Message":"Internal Server Error"}')


def test_a_buffered_url_reads_the_same_beginning(platform: Platform) -> None:
    platform.create("f", CLIENT)
    url = url_of(platform)
    event = {"pieces": [PRELUDE, "\0" * 8, "body"], "type": INTEGRATION}
    answer, text = ask(platform, f"{url}/", "POST", json.dumps(event).encode())
    assert (answer.status, answer.headers["x-own"], text) == (201, "1", b"body")
    assert answer.headers["content-length"] == "4"


NODE = """
exports.plain = awslambda.streamifyResponse(async (event, stream, context) => {
  stream.setContentType('text/plain');
  for (const piece of event.pieces || ['a', 'b']) {
    if (piece === 'throw') throw new TypeError('half-way');
    if (piece === 'at length') throw new TypeError('half-way '.repeat(20000));
    if (piece === 'uncaught') {
      setTimeout(() => { throw new RangeError('late'); }, 1);
      await new Promise(() => {});
    }
    if (piece === 'forget') return;
    if (typeof piece === 'number') {
      for (let left = piece; left > 0; left -= 65536) {
        if (stream.write(Buffer.alloc(65536))) continue;
        await new Promise((done) => stream.once('drain', done));
      }
    } else stream.write(piece);
  }
  stream.end();
});
exports.http = awslambda.streamifyResponse(async (event, stream) => {
  const metadata = { statusCode: 202, headers: { 'x-own': event.rawPath } };
  stream = awslambda.HttpResponseStream.from(stream, metadata);
  stream.write('hello');
  await new Promise((done) => setTimeout(done, 5));
  stream.end(' world');
});
exports.pipe = awslambda.streamifyResponse(async (event, stream) => {
  const { pipeline } = require('stream/promises');
  await pipeline(require('stream').Readable.from(['x', 'y', 'z']), stream);
});
"""

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")


def node(platform: Platform, handler: str) -> None:
    files: Any = {"index.js": NODE}
    platform.create("f", files, Runtime="nodejs20.x", Handler=f"index.{handler}", Timeout=20)


@needs_node
def test_handlers_in_node_stream(platform: Platform) -> None:
    node(platform, "plain")
    for _ in range(3):
        pieces, end = streamed(platform, {})
        assert (b"".join(pieces), end) == (b"ab", {})
    pieces, end = streamed(platform, {"pieces": [4 * 2**20]})
    assert (sum(map(len, pieces)), end) == (4 * 2**20, {})
    pieces, end = streamed(platform, {"pieces": ["throw"]})
    assert (pieces, end["ErrorCode"]) == ([], "TypeError")
    pieces, end = streamed(platform, {"pieces": ["a", "throw"]})
    assert (pieces, end["ErrorCode"]) == ([b"a"], "TypeError")
    assert "half-way" in end["ErrorDetails"]
    # A trailer has no room for all of it.
    pieces, end = streamed(platform, {"pieces": ["a", "at length"]})
    assert (pieces, end["ErrorCode"]) == ([b"a"], "TypeError")
    assert json.loads(end["ErrorDetails"])["errorMessage"].startswith("half-way half-way")
    pieces, end = streamed(platform, {"pieces": ["forget"]})
    assert (pieces, end["ErrorCode"]) == ([], "Runtime.NodeJsExit")
    pieces, _ = streamed(platform, {})
    assert b"".join(pieces) == b"ab"
    # All of this was one instance; an error that nobody caught ends it.
    assert len({row["instance"] for row in log(platform)}) == 1
    pieces, end = streamed(platform, {"pieces": ["a", "uncaught"]})
    assert (pieces, end["ErrorCode"]) == ([b"a"], "RangeError")
    pieces, _ = streamed(platform, {})
    assert b"".join(pieces) == b"ab"


@needs_node
def test_node_sends_status_and_headers_first(platform: Platform) -> None:
    node(platform, "http")
    url = url_of(platform, InvokeMode="RESPONSE_STREAM")
    for _ in range(2):
        with asked(platform, f"{url}/path") as answer:
            assert (answer.status, answer.headers["x-own"]) == (202, "/path")
            assert answer.read() == b"hello world"


@needs_node
def test_node_pipes_into_an_answer(platform: Platform) -> None:
    node(platform, "pipe")
    for _ in range(2):
        pieces, end = streamed(platform, {})
        assert (b"".join(pieces), end) == (b"xyz", {})
