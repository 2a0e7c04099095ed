"""Arithmetic operations in turn: addition, subtraction, multiplication, division of whole numbers.

Operands repeat after a period, so that the sum of all results is known without carrying them out,
and every answer is checked.
"""

import itertools
import os
import resource  # noqa: F401 - so that the CPU time of children counts
import threading
import time

from uncia_envelope import Choice, Parameter, enveloped

OPERAND_MIN = 10
OPERANDS = 91  # from 10 to 100
LEFT_STEP, RIGHT_STEP = 7, 13
PERIOD = 4 * OPERANDS

_client = None


def operate(first, last):
    """The sum of the results of the operations from `first` to before `last`."""
    total = 0
    for i in range(first, last):
        a = OPERAND_MIN + i * LEFT_STEP % OPERANDS
        b = OPERAND_MIN + i * RIGHT_STEP % OPERANDS
        kind = i % 4
        if kind == 0:
            total += a + b
        elif kind == 1:
            total += a - b
        elif kind == 2:
            total += a * b
        else:
            total += a // b
    return total


def expected(operations):
    """The sum of the results of so many operations, from one period of them."""
    periods, rest = divmod(operations, PERIOD)
    return periods * operate(0, PERIOD) + operate(0, rest)


@enveloped(
    {
        "phase": Choice("compute", ("compute", "load", "both")),
        "operations": Parameter(1_000_000, 0, 100_000_000_000),
        "workers": Parameter(1, 1, 1_000),
        "by": Choice("threads", ("threads", "processes")),
    }
)
def handler(phase, operations, workers, by):
    result, valid = {}, True
    if phase != "compute":
        begin = time.monotonic_ns()
        loaded = load(operations)
        result["load_ns"] = time.monotonic_ns() - begin
        valid = operations in (0, loaded)
        operations = loaded
    result["operations"] = operations
    if phase != "load":
        begin = time.monotonic_ns()
        result["result"] = share(operations, workers, by)
        result["compute_ns"] = time.monotonic_ns() - begin
        valid = valid and result["result"] == expected(operations)
    if not valid:
        raise ValueError(f"the answer is wrong: {result}")
    return result, valid


def share(operations, workers, by):
    """The sum of all results, of operations that workers share evenly."""
    if workers == 1:
        return operate(0, operations)
    edges = [operations * part // workers for part in range(workers + 1)]
    parts = list(itertools.pairwise(edges))
    return in_threads(parts) if by == "threads" else in_processes(parts)


def in_threads(parts):
    results = [0] * len(parts)

    def work(position, first, last):
        results[position] = operate(first, last)

    threads = [
        threading.Thread(target=work, args=(position, *part)) for position, part in enumerate(parts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(results)


def in_processes(parts):
    """Each part in a process of its own, which writes its result to a pipe."""
    children = []
    try:
        for part in parts:
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                # No clean-up of the parent's: it ends here, whatever happens.
                try:
                    os.write(writer, str(operate(*part)).encode())
                finally:
                    os._exit(0)
            os.close(writer)
            children.append((child, reader))
        return sum(int(os.read(reader, 64) or b"0") for _, reader in children)
    finally:
        for child, reader in children:
            os.close(reader)
            os.waitpid(child, 0)


def load(operations):
    """The number in the store; the first to ask leaves it there."""
    bucket = os.environ.get("UNCIA_STORE_BUCKET")
    if not bucket:
        raise RuntimeError("this function reaches no store: name it in its reach ([store])")
    key = f"{os.environ.get('UNCIA_STORE_PREFIX', '')}alu/operations-{operations}"
    api = store()
    try:
        return int(api.get_object(Bucket=bucket, Key=key)["Body"].read())
    except api.exceptions.NoSuchKey:
        api.put_object(Bucket=bucket, Key=key, Body=str(operations).encode())
        return int(api.get_object(Bucket=bucket, Key=key)["Body"].read())


def store():
    """The client of AWS's SDK, made once."""
    global _client
    if _client is None:
        import boto3
        from botocore.config import Config

        _client = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
    return _client
