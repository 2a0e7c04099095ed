"""``python -m uncia``: the command ``uncia``."""

from uncia.cli import main

main()
