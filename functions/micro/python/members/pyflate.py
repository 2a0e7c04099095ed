"""A bzip2 archive unpacked in plain Python."""

import bz2
import os


def prepare(bench):
    return os.path.join(os.path.dirname(bench.__file__), "data", "interpreter.tar.bz2")


def run(bench, repeat, path):
    # It compares the digest of what it unpacks with a published one, and raises where they differ.
    bench.bench_pyflake(repeat, path)


def check(bench, path, result):
    with open(path, "rb") as file:
        field = bench.RBitfield(file)
        field.readbits(16)
        mine = bench.bzip2_main(field)
    with open(path, "rb") as file:
        return mine == bz2.decompress(file.read())
