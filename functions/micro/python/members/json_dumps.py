"""Objects as texts of JSON."""

import json
import json.encoder


def prepare(bench):
    cases = [getattr(bench, name) for name in bench.CASES]
    return [(value, range(count)) for value, count in cases]


def run(bench, repeat, data):
    for _ in range(repeat):
        bench.bench_json_dumps(data)


def check(bench, data, result):
    # The encoder in plain Python, which the one in C takes the place of.
    fast, json.encoder.c_make_encoder = json.encoder.c_make_encoder, None
    try:
        slow = [json.dumps(value, indent=1) for value, _ in data]
    finally:
        json.encoder.c_make_encoder = fast
    return [json.loads(text) for text in slow] == [json.loads(json.dumps(it)) for it, _ in data]
