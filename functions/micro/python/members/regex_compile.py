"""Regular expressions compiled."""

import os
import re
import sys

import regex


def prepare(bench):
    # It takes the expressions from two other benchmarks, which lie beside it.
    sys.path.insert(0, os.path.dirname(bench.__file__))
    return bench.capture_regexes()


def run(bench, repeat, expressions):
    bench.bench_regex_compile(repeat, expressions)


def check(bench, expressions, result):
    plain = {it for it, _ in expressions if isinstance(it, str)}
    # Another engine finds the same groups in them.
    return all(re.compile(it).groups == regex.compile(it).groups for it in plain)
