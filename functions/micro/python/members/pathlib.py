"""Files found and looked at."""

import atexit
import os
import shutil


def prepare(bench):
    folder = bench.setup(bench.NUM_FILES)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def run(bench, repeat, folder):
    bench.bench_pathlib(repeat, folder)


def check(bench, folder, result):
    names = os.listdir(folder)
    scripts = len(list(bench.pathlib.Path(folder).glob("*.py")))
    # A quarter of them ends so.
    return (len(names), scripts) == (2_000, 500)
