"""The scheduler of an operating system."""


def run(bench, repeat, prepared):
    # True if it held and queued packets as often as the version of 1981 did: 9,297 and 23,246.
    return bench.Richards().run(repeat)


def check(bench, prepared, is_right):
    return is_right
