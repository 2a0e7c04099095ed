"""Pickles as objects."""

import io
import pickle
import types

FOLDER = "pickle"


OPTIONS = types.SimpleNamespace(protocol=pickle.HIGHEST_PROTOCOL)


def run(bench, repeat, prepared):
    bench.bench_unpickle(repeat, pickle, OPTIONS)


def check(bench, prepared, result):
    values = (bench.DICT, bench.TUPLE, bench.DICT_GROUP)
    for value in values:
        # The writer in plain Python, which the one in C takes the place of.
        target = io.BytesIO()
        pickle._Pickler(target, OPTIONS.protocol).dump(value)
        if pickle.loads(target.getvalue()) != value:
            return False
    return True
