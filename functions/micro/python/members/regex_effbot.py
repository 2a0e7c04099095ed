"""Regular expressions in texts of growing length."""

import re

import regex


def run(bench, repeat, prepared):
    for _ in range(repeat):
        bench.bench_regex_effbot(1)


def check(bench, prepared, result):
    for expression, text in bench.init_benchmarks((0, 5, 50)):
        mine = re.search(expression, text)
        # Another engine finds the same.
        theirs = regex.search(expression.pattern, text, expression.flags & re.VERBOSE)
        if (mine and mine.span()) != (theirs and theirs.span()):
            return False
    return True
