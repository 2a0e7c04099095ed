"""Regular expressions as web pages have them."""

import re

import regex


def run(bench, repeat, prepared):
    bench.bench_regex_v8(repeat)


def check(bench, prepared, result):
    seen = []

    class Watching:
        """`re`, which notes what is looked for where."""

        def __getattr__(self, name):
            return getattr(re, name)

        def search(self, expression, text, flags=0):
            seen.append((expression, text, flags))
            return re.search(expression, text, flags)

    bench.re = Watching()
    try:
        bench.block0()
        bench.block1()
    finally:
        bench.re = re
    for expression, text, _ in seen:
        pattern = expression if isinstance(expression, str) else expression.pattern
        mine, theirs = re.search(pattern, text), regex.search(pattern, text)
        # Another engine finds the same.
        if (mine and mine.span()) != (theirs and theirs.span()):
            return False
    return True
