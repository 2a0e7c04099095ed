"""Has the servers that services of a run's own need: ``python -m uncia.services``."""

import sys

from uncia.errors import UnciaError
from uncia.services import docker_registry, versitygw

if __name__ == "__main__":
    print(f"versitygw {versitygw.version()}: {versitygw.build()}")
    try:
        print(f"docker-registry: {docker_registry.install()}")
    except UnciaError as error:
        # The other services do without it.
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
