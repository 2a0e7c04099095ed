"""Objects as pickles."""

import io
import pickle
import types

OPTIONS = types.SimpleNamespace(protocol=pickle.HIGHEST_PROTOCOL)


def run(bench, repeat, prepared):
    bench.bench_pickle(repeat, pickle, OPTIONS)


def check(bench, prepared, result):
    values = (bench.DICT, bench.TUPLE, bench.DICT_GROUP)
    # The reader in plain Python, which the one in C takes the place of.
    read = [
        pickle._Unpickler(io.BytesIO(pickle.dumps(it, OPTIONS.protocol))).load() for it in values
    ]
    return tuple(read) == values
