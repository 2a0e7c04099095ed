"""Work in the background of an instance, between one request and the next.

The work is a chain of SHA-256 over blocks of 64 KiB: each hash is of the one before and a block, so
it cannot be had without having been computed. Python lets go of its lock while it hashes blocks
of this size, so the thread does not hold up an answer.
"""

import hashlib
import threading
import time

from uncia_envelope import Parameter, enveloped

BLOCK = bytes(range(256)) * 256


def link(value):
    """The next hash of the chain."""
    step = hashlib.sha256(value)
    step.update(BLOCK)
    return step.digest()


class Work:
    """A thread that hashes until it has used its CPU time or is told to stop."""

    def __init__(self, most_ns):
        self.most_ns = most_ns
        self.chain = (0, b"", b"")  # steps, the last hash but one, the last: changed together
        self.ended_cpu_ns = None
        self.answer_cpu_ns = self.answer_ns = None
        self.stopping = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        self.clock = time.pthread_getcpuclockid(self.thread.ident)

    def run(self):
        while not self.stopping and time.thread_time_ns() < self.most_ns:
            steps, _, value = self.chain
            self.chain = (steps + 1, value, link(value))
        self.ended_cpu_ns = time.thread_time_ns()

    def cpu_ns(self):
        """CPU time of the thread so far; what it ended with, once it has."""
        if self.ended_cpu_ns is None:
            try:
                return time.clock_gettime_ns(self.clock)
            except OSError:  # it ended between the two lines
                self.thread.join()
        return self.ended_cpu_ns

    def answered(self):
        """Notes where the thread is when the invocation that started it ends."""
        self.answer_cpu_ns, self.answer_ns = self.cpu_ns(), time.time_ns()

    def collect(self):
        """Ends the thread; what it has done, and whether that is right."""
        now, used = time.time_ns(), self.cpu_ns()
        done = self.ended_cpu_ns is not None
        self.stopping = True
        self.thread.join()
        steps, before, value = self.chain
        report = {
            "steps": steps,
            "digest": value.hex(),
            "cpu_ns": used,
            "answer_cpu_ns": self.answer_cpu_ns,
            "answer_ns": self.answer_ns,
            "collect_ns": now,
            "done": done,
        }
        return report, steps == 0 or value == link(before)


def spans(collected):
    """The time between two invocations, and as much of it as the thread had of a CPU."""
    begin, end = collected["answer_ns"], collected["collect_ns"]
    used = collected["cpu_ns"] - collected["answer_cpu_ns"]
    return [["background", begin, end], ["background_cpu", begin, begin + used]]


current = None


@enveloped({"cpu": Parameter(1000, 0, 3_600_000, "ms", whole=False), "wait": Parameter(0, 0, 1)})
def handler(cpu, wait):
    global current
    collected, valid = (None, True) if current is None else current.collect()
    current = Work(round(cpu * 1_000_000)) if cpu else None
    if current is not None:
        if wait:
            current.thread.join()
        current.answered()
    result = {"started": current is not None, "collected": collected}
    if collected is not None:
        result["uncia"] = {"spans": spans(collected)}
    return result, valid
