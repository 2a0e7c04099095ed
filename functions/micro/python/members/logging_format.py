"""Messages that are formatted and written to a stream."""

import io
import logging

FOLDER = "logging"


def run(bench, repeat, prepared):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.Logger("benchmark", logging.WARNING)
    logger.addHandler(handler)
    bench.bench_formatted_output(100 * repeat, logger, stream)
    # As cheap as to compare it with what was written before.
    line = "important: some important information to be logged\n"
    return stream.getvalue() == line * 1_000 * repeat


def check(bench, prepared, is_right):
    return is_right
