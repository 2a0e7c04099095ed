"""What the catalogue's Python functions share: parameters in, the `uncia` key of the answer out.

Copied beside the handler when a function is packaged. It needs the standard library only, and
of that only what is loaded anyway, because every import here is paid again at each cold start.
"""

import itertools
import os
import sys
import time

_INSTANCE = os.urandom(8).hex()
# What an answer has for the next stage alone.
HANDED_ON = "payload"
_CALLS = itertools.count()  # next() is atomic, so one invocation alone is the first

# What one of each unit is, in the smallest unit of its kind. A megabyte is 1024 * 1024 bytes, as
# it is for the platforms that sell memory by the megabyte.
_TIME = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
}
_SIZE = {"B": 1, "KB": 2**10, "KiB": 2**10, "MB": 2**20, "MiB": 2**20, "GB": 2**30, "GiB": 2**30}


class Choice:
    """A text or a truth value that a function takes: its default, and what is allowed if not all.

    What does not echo is in the answer's `parameters` only if it is the default, and in no error.
    """

    def __init__(self, default, choices=None, echoes=True):
        self.default, self.choices, self.echoes = default, choices, echoes

    def read(self, name, given):
        """`given` as it is. Raises ValueError, with the parameter's name, if it is not allowed."""
        if type(given) is not type(self.default) or (self.choices and given not in self.choices):
            allowed = f"one of {', '.join(map(str, self.choices))}" if self.choices else "a text"
            shown = repr(str(given)[:50]) if self.echoes else "it"
            raise ValueError(f"{name}: {shown} is not {allowed}")
        return given


class Parameter:
    """A number that a function takes: its default, the least and most allowed, its unit if any."""

    def __init__(self, default, low, high, unit=None, whole=True):
        self.default, self.low, self.high, self.unit, self.whole = default, low, high, unit, whole

    def read(self, name, given):
        """`given` as a number in the unit; it is one already, or text such as "50ms".

        Raises ValueError, with the parameter's name, when it is no such number or out of range.
        """
        value = self._of_text(name, given) if isinstance(given, str) else given
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            raise ValueError(f"{name}: {given!r} is not a number{self._in_unit()}")
        if not self.low <= value <= self.high:
            raise ValueError(
                f"{name}: {given!r} is not between {self.low} and {self.high}{self._in_unit()}"
            )
        if self.whole:
            if value != int(value):
                raise ValueError(f"{name}: {given!r} is not a whole number{self._in_unit()}")
            value = int(value)
        return value

    def _in_unit(self):
        return f" {self.unit}" if self.unit else ""

    def _of_text(self, name, text):
        number = text.strip()
        unit = ""
        while number and number[-1].isalpha():
            number, unit = number[:-1], number[-1] + unit
        try:
            value = int(number) if number.strip().isdigit() else float(number)
        except ValueError:
            raise ValueError(f"{name}: {text!r} is not a number{self._in_unit()}") from None
        if not unit:
            return value
        units = next((known for known in (_TIME, _SIZE) if self.unit in known), {})
        if unit not in units:
            raise ValueError(
                f"{name}: unknown unit in {text!r}; allowed: {', '.join(units) or 'none'}"
            )
        whole, rest = divmod(value * units[unit], units[self.unit])
        return whole if rest == 0 else whole + rest / units[self.unit]


def _given(event):
    """The parameters in an event: the event itself, or the JSON in the body of an HTTP request."""
    if isinstance(event, dict) and ("body" in event or "requestContext" in event):
        body = event.get("body")
        if event.get("isBase64Encoded") and body:
            from binascii import a2b_base64

            body = a2b_base64(body)
        if not body:
            return {}
        import json

        event = json.loads(body)
    if event is None:
        return {}
    if not isinstance(event, dict):
        raise ValueError(
            f"the event must be a JSON object of parameters, not {type(event).__name__}"
        )
    return event


def _take_chain(event):
    """The chain that an event is a stage of, if it is one, and the event without it."""
    if not isinstance(event, dict):
        return None, event
    body = event.get("body")
    if "uncia" not in event and not (isinstance(body, str) and '"uncia"' in body):
        return None, event
    event = _given(event)
    about = event.pop("uncia", None)
    return about.get("chain") if isinstance(about, dict) else None, event


def _follow(chain, result, context):
    """Invoke the stages that follow in the chain; what the answer says of them, and what failed."""
    try:
        from uncia_calls import KERNEL, follow
    except ImportError:
        raise RuntimeError("this package invokes no functions: package it with --calls") from None
    request = getattr(context, "aws_request_id", "")
    hops, failure = follow(chain, result, _INSTANCE, request)
    return {"kernel": KERNEL, "hops": hops}, failure


def _is_by_url(chain, event):
    """Whether a stage was invoked by its URL, so that an answer of it is one of HTTP.

    Where no platform logs hops, what failed is to be an answer that has them, as an exception has
    only a text.
    """
    is_request = isinstance(event, dict) and "requestContext" in event
    return is_request and "url" in chain["stages"][chain["at"]]


def _bad_gateway(failure, about):
    """The answer of a stage of which a later one failed: as of an exception, and with its hops."""
    import json

    body = {"errorType": "RuntimeError", "errorMessage": failure, "uncia": about}
    headers = {"content-type": "application/json"}
    return {"statusCode": 502, "headers": headers, "body": json.dumps(body)}


def read_parameters(event, declared):
    """Every declared parameter, given or default. An unknown name is a ValueError."""
    given = _given(event)
    unknown = sorted(set(given) - set(declared))
    if unknown:
        allowed = ", ".join(declared) or "none"
        raise ValueError(f"unknown parameter {unknown[0]!r}; allowed: {allowed}")
    return {name: p.read(name, given.get(name, p.default)) for name, p in declared.items()}


def _cpu_ns():
    """CPU time of this process so far, and of the children that it has waited for.

    Of these where the function has loaded `resource`: loading it makes starts longer.
    """
    resource = sys.modules.get("resource")
    if resource is None:
        return time.process_time_ns()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + round((children.ru_utime + children.ru_stime) * 1e9)


def enveloped(parameters=None):
    """Makes a Lambda handler of `work(**parameters) -> (result: dict, valid: bool)`.

    With `parameters=None` the event is ignored, whatever it is.
    """

    def decorate(work):
        def handler(event, context=None):
            cpu = _cpu_ns()
            start = time.time_ns()
            fresh = next(_CALLS) == 0
            given = event
            chain, event = _take_chain(event)
            values = {} if parameters is None else read_parameters(event, parameters)
            result, valid = work(**values)
            if parameters is not None:
                result["parameters"] = {
                    name: values[name]
                    for name, it in parameters.items()
                    if getattr(it, "echoes", True) or values[name] == it.default
                }
            hops, failure = ({}, "") if chain is None else _follow(chain, result, context)
            if failure and not _is_by_url(chain, given):
                raise RuntimeError(failure)
            if hops.get("hops"):
                # It has been handed on; the caller has no use for it.
                result.pop(HANDED_ON, None)
            result["uncia"] = {
                **result.get("uncia", {}),
                **hops,
                "fresh": fresh,
                "instance": _INSTANCE,
                "handler_start_ns": start,
                "handler_end_ns": time.time_ns(),
                "cpu_ns": _cpu_ns() - cpu,
                "valid": bool(valid) and not failure,
            }
            return _bad_gateway(failure, result["uncia"]) if failure else result

        return handler

    return decorate
