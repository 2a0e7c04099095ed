"""Texts of JSON as objects."""

import ast
import json


def prepare(bench):
    values = (bench.DICT, bench.TUPLE, bench.DICT_GROUP)
    return tuple(json.dumps(value) for value in values)


def run(bench, repeat, texts):
    for _ in range(repeat):
        bench.bench_json_loads(texts)


def check(bench, texts, result):
    # These texts are literals of Python's, too, whose parser is another.
    return all(json.loads(text) == ast.literal_eval(text) for text in texts)
