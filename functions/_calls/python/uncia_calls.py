"""Chains: a function invokes the stages after its own, and reports them as hops.

Beside the handler only in packages of functions that invoke others. AWS's SDK is loaded when the
first stage is invoked by it; stages with a URL need the standard library alone.
"""

import json
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

_ANSWER = "uncia:answer"
_STAGE_HEADER = "x-uncia-stage"  # what the platform names the stage by in its log
_TIMEOUT_S = 900  # no function runs longer
_KERNEL_CHARACTERS = 8  # of a kernel's name, so much tells it from others
_MAX_ERROR = 500

_lock = threading.Lock()
_stage = threading.local()
_client = None


def _kernel():
    """What tells a running kernel from others: clocks on one compare."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read()[:_KERNEL_CHARACTERS]
    except OSError:
        return ""


KERNEL = _kernel()


def follow(chain, result, instance, request):
    """Invoke the stages after this one, all at once, until all have ended.

    `request` is the id of this invocation, or empty.

    Returns the hops that are reported of them, and what went wrong, "" if nothing did.
    """
    calls = list(_calls(chain, result))
    if not calls:
        return [], ""
    if len(calls) == 1:
        done = [_perform(*calls[0], instance, request)]
    else:
        with ThreadPoolExecutor(len(calls)) as pool:
            done = list(pool.map(lambda call: _perform(*call, instance, request), calls))
    failures = [failure for _, failure in done if failure]
    return [hop for hops, _ in done for hop in hops], "; ".join(failures)


def _calls(chain, result):
    """Each stage that comes next: itself, its name with its turn, its event, how it is invoked."""
    stages = chain["stages"]
    this = stages[chain["at"]]
    if chain["turn"] < this.get("repeat", 1):
        targets = [(chain["at"], chain["turn"] + 1)]
    else:
        targets = [(at, 1) for at in this.get("next", [])]
    for at, turn in targets:
        stage = stages[at]
        name = f"{stage['stage']}-{turn}" if stage.get("repeat", 1) > 1 else stage["stage"]
        event = _fill(stage.get("event", {}), result)
        event["uncia"] = {"chain": {**chain, "at": at, "turn": turn}}
        yield stage, name, json.dumps(event).encode(), chain["kind"] == "asynchronous"


def _fill(value, result):
    """A stage's event with values of the answer that it follows."""
    if isinstance(value, list):
        return [_fill(item, result) for item in value]
    if not isinstance(value, dict):
        return value
    if _ANSWER not in value:
        return {key: _fill(item, result) for key, item in value.items()}
    part = result
    for key in value[_ANSWER]:
        try:
            part = part[int(key)] if isinstance(part, list) else part[key]
        except (KeyError, IndexError, ValueError, TypeError):
            path = ".".join(value[_ANSWER])
            raise RuntimeError(f"the answer before it has no {path}") from None
    return part


def _perform(stage, name, payload, is_event, instance, parent):
    """Invoke a stage; return its hop and those that it reports, and what went wrong."""
    hop = {
        "stage": name,
        "function": stage["function"],
        "parent": parent,
        "caller": instance,
        "caller_kernel": KERNEL,
        "request_bytes": len(payload),
        "event": is_event,
    }
    invoke = _post if stage.get("url") else _invoke
    hop["sent_ns"] = time.time_ns()
    answer, request, failure = invoke(stage, name, payload, is_event)
    hop["received_ns"] = time.time_ns()
    hop["request"] = request or uuid.uuid4().hex
    if failure:
        # The last stage that failed is named: each passes on what it is told.
        passes_on = failure.startswith("stage ")
        hop["error"] = (failure if passes_on else f"stage {name}: {failure}")[:_MAX_ERROR]
    elif not is_event:
        hop["response_bytes"] = len(answer)
    try:
        envelope = json.loads(answer).get("uncia")
    except (ValueError, AttributeError, RecursionError):
        envelope = None
    hops = [hop]
    if isinstance(envelope, dict):
        for key in ("handler_start_ns", "handler_end_ns", "instance", "fresh", "kernel", "spans"):
            if key in envelope:
                hop[key] = envelope[key]
        hops += _later(envelope.get("hops"), hop["request"])
    return hops, hop.get("error")


def _later(reported, request):
    """The hops that an answer reports; what has another form is the function's own affair."""
    if not isinstance(reported, list):
        return []
    hops = [it for it in reported if isinstance(it, dict) and "parent" in it]
    return [{**hop, "parent": hop["parent"] or request} for hop in hops]


def _sdk():
    """The client of AWS's SDK, made once."""
    global _client
    with _lock:
        if _client is None:
            import boto3
            from botocore.config import Config

            # What is tried again would be two invocations in the rows, and one hop.
            config = Config(
                retries={"total_max_attempts": 1}, read_timeout=_TIMEOUT_S, max_pool_connections=64
            )
            _client = boto3.client("lambda", config=config)
            _client.meta.events.register("before-call.lambda.Invoke", _name_stage)
        return _client


def _name_stage(params, **_):
    params["headers"][_STAGE_HEADER] = _stage.name


def _invoke(stage, name, payload, is_event):
    client = _sdk()
    _stage.name = name
    try:
        answer = client.invoke(
            FunctionName=stage["function"],
            Payload=payload,
            InvocationType="Event" if is_event else "RequestResponse",
        )
        body = answer["Payload"].read()
    except Exception as error:  # noqa: BLE001 - whatever the SDK raises is the hop's failure
        return b"", None, f"{type(error).__name__}: {error}"
    request = answer["ResponseMetadata"].get("RequestId")
    if "FunctionError" in answer:
        return body, request, _message(body)
    return body, request, None


def _message(body):
    """What a function says that failed."""
    try:
        message = json.loads(body)["errorMessage"]
    except (ValueError, KeyError, TypeError, RecursionError):
        message = None
    if isinstance(message, str) and message:
        return message
    return body[:_MAX_ERROR].decode(errors="replace")


def _post(stage, name, payload, _is_event):
    import urllib.error
    import urllib.request

    headers = {"content-type": "application/json", _STAGE_HEADER: name}
    request = urllib.request.Request(stage["url"], data=payload, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return answer.read(), answer.headers.get("x-amzn-requestid"), None
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
        text = _message(body)
        if not text.startswith("stage "):
            text = f"HTTP {error.code}: {body[:_MAX_ERROR].decode(errors='replace')}"
        return body, error.headers.get("x-amzn-requestid"), text
    except OSError as error:
        return b"", None, f"{type(error).__name__}: {error}"
