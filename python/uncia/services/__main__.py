"""Has the servers that services of a run's own need: ``python -m uncia.services``."""

import sys

from uncia.errors import UnciaError
from uncia.services import docker_registry, redis_server, versitygw

if __name__ == "__main__":
    print(f"versitygw {versitygw.version()}: {versitygw.build()}")
    for program in (docker_registry.PROGRAM, redis_server.PROGRAM):
        try:
            print(f"{program.name}: {program.install()}")
        except UnciaError as error:
            # The other services do without it.
            print(f"{error.message}\n{error.hint}", file=sys.stderr)
