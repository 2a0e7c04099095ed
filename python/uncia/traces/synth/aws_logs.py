"""Synthetic logs of AWS Lambda, as ``aws logs filter-log-events`` prints them: a file a function.

An invocation is the lines START, END and REPORT. Durations follow what the cost paper measured of
a CPU-bound function (PyAES): 17.263 ms on a full vCPU at 1769 MB or more, and longer by the share
that a smaller size has of it; a billed duration is the true one rounded up to 1 ms, which the
displayed one, rounded to 0.01 ms, does not always show. As of May 2025, when those were measured,
initialization is not billed. Chosen: sizes, the spread, the rate, the life of instances, and
initialization (lognormal about 300 ms).
"""

import json
from collections.abc import Iterator
from typing import Final

import numpy as np

from uncia.providers import LAMBDA_MB
from uncia.traces.synth import records
from uncia.traces.synth.base import Made, Order, generator, spread

KIND: Final = "aws-logs"
DESCRIPTION: Final = "START, END and REPORT lines of AWS Lambda functions, as aws logs prints them."

_SIZES: Final = (128, 256, 512, 1024, LAMBDA_MB, 3008)
LAMBDA_MB_US: Final = 17_263
_BEGIN_MS: Final = 1_747_008_000_000  # 2025-05-12, 00:00 UTC
_GAP_MS: Final = 1_000
_LIFE: Final = 500  # invocations of an instance
_ROWS_A_FILE: Final = 100_000
_FAILED: Final = 0.002

_SPOILERS: Final = {
    "nan": records.replaced("Billed Duration: ", "Billed Duration: NaN "),
    "negative": records.replaced("\\tDuration: ", "\\tDuration: -"),
    "absurd": records.replaced("\\tDuration: ", "\\tDuration: 99999999999999999999"),
    "empty": records.replaced("\\tMemory Size: ", "\\tMemory: "),
    "text": records.replaced(" ms\\tBilled", " milliseconds or so\\tBilled"),
    "not_an_event": lambda _: "[1, 2]",
    "no_message": records.replaced('"message"', '"massage"'),
}


def make(order: Order) -> Made:
    """Write ``function-0.json`` and so on."""
    parts = spread(order.rows, order.files or -(-order.rows // _ROWS_A_FILE))
    return Made(
        [
            records.write(
                order,
                number,
                f"function-{number}.json",
                '{"events": [',
                _invocations(order.seed, number, rows),
                '], "searchedLogStreams": []}',
                _SPOILERS,
            )
            for number, (_, rows) in enumerate(parts)
        ]
    )


def _invocations(seed: int, number: int, rows: int) -> Iterator[list[str]]:
    memory = _SIZES[number % len(_SIZES)]
    usual = LAMBDA_MB_US * max(1.0, LAMBDA_MB / memory)
    time = _BEGIN_MS
    for life in range(-(-rows // _LIFE)):
        rng = generator(seed, number, life)
        stream = f"2025/05/12/[$LATEST]{rng.bytes(16).hex()}"
        identifiers = rng.bytes(16 * _LIFE).hex()
        z = np.clip(rng.standard_normal(_LIFE), -4, 4)
        durations = np.rint(usual * np.exp(0.1 * z)).astype(np.int64).tolist()
        gaps = rng.integers(0, 2 * _GAP_MS, _LIFE).tolist()
        failed = (rng.random(_LIFE) < _FAILED).tolist()
        init = int(300_000 * np.exp(0.3 * np.clip(rng.standard_normal(), -3, 3)))
        used = 36 + int(rng.integers(0, 8))
        for i in range(min(_LIFE, rows - life * _LIFE)):
            time += gaps[i] + (init // 1000 if i == 0 else 0)
            end = time - (-durations[i] // 1000)
            request = _uuid(identifiers[32 * i : 32 * i + 32])
            report = _report(durations[i], memory, used, init if i == 0 else None, failed[i])
            messages = (
                (time, f"START RequestId: {request} Version: $LATEST\n"),
                (end, f"END RequestId: {request}\n"),
                (end, f"REPORT RequestId: {request}\t{report}\n"),
            )
            yield [
                json.dumps(
                    {
                        "logStreamName": stream,
                        "timestamp": at,
                        "message": message,
                        "ingestionTime": at + 9_000,
                        "eventId": f"{at:026d}{number:05d}{life * _LIFE + i:015d}{part:010d}",
                    }
                )
                for part, (at, message) in enumerate(messages)
            ]
            time = end


def _report(duration_us: int, memory: int, used: int, init_us: int | None, failed: bool) -> str:
    hundredths = (duration_us + 5) // 10
    billed = -(-duration_us // 1000)
    text = (
        f"Duration: {hundredths // 100}.{hundredths % 100:02d} ms\tBilled Duration: {billed} ms\t"
        f"Memory Size: {memory} MB\tMax Memory Used: {used} MB\t"
    )
    if init_us is not None:
        text += f"Init Duration: {init_us // 1000}.{init_us % 1000 // 10:02d} ms\t"
    return text + ("Status: error\tError Type: Runtime.ExitError\t" if failed else "")


def _uuid(digits: str) -> str:
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(parts)
