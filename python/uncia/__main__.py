"""``python -m uncia`` is the command ``uncia``."""

from uncia.cli import main

main()
