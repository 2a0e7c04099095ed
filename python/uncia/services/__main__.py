"""Builds the servers that services of a run's own need: ``python -m uncia.services``."""

from uncia.services import versitygw

if __name__ == "__main__":
    print(f"versitygw {versitygw.version()}: {versitygw.build()}")
