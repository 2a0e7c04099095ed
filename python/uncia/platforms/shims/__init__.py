"""Programs that stand before functions on targets that are no platforms: nothing here is imported.

Each is run by its path, without the package.
"""
