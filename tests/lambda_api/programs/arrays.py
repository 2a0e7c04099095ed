"""NumPy: linear algebra in several threads, transforms, random numbers, and a mapped file."""

import os

import numpy


def handler(event, context):
    generator = numpy.random.default_rng(1)
    matrix = generator.normal(size=(500, 500))
    solved = numpy.linalg.solve(matrix, matrix @ matrix)
    values = numpy.linalg.eigvalsh(matrix @ matrix.T)
    signal = numpy.cos(2 * numpy.pi * 5 * numpy.arange(1024) / 1024)
    mapped = numpy.memmap("/tmp/mapped", dtype="i8", mode="w+", shape=(1000,))
    mapped[:] = numpy.arange(1000)
    mapped.flush()
    read = numpy.memmap("/tmp/mapped", dtype="i8", mode="r")
    loaded = numpy.load(save(matrix), mmap_mode="c")
    return {
        "solved": bool(numpy.allclose(solved, matrix, atol=1e-6)),
        "positive": bool(values.min() > 0),
        "peak": int(numpy.abs(numpy.fft.rfft(signal)).argmax()),
        "mapped": int(read.sum()),
        "loaded": bool((loaded == matrix).all()),
        "shuffled": sorted(generator.permutation(5).tolist()),
        "cpus": len(os.sched_getaffinity(0)),
        "threads": len(os.listdir("/proc/self/task")),
        "filters": filters(),
    }


def save(array):
    numpy.save("/tmp/saved.npy", array)
    return "/tmp/saved.npy"


def filters():
    """The modes of system calls' filters of all threads."""
    modes = set()
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/status") as status:
            modes |= {line.split()[1] for line in status if line.startswith("Seccomp:")}
    return sorted(modes)
