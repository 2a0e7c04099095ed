"""The command ``uncia`` for commands of pages: some get options besides, some are left out."""

import os
import sys

from uncia import cli

command = sys.argv[1]
for extra in os.environ.get("SHIM_WITH", "").split(";"):
    name, *options = extra.split() or [""]
    if name == command:
        sys.argv += [option.replace("PID", str(os.getpid())) for option in options]
for left_out in os.environ.get("SHIM_WITHOUT", "").split(";"):
    if left_out.split(",")[0].strip() == command:
        sys.exit()
cli.main()
