"""Histories: a suite run again and again, each time compared with those before.

`folders` is what stands on the disk, `figures` and `index` what is derived from it, `judging` the
verdicts, `repeat` carries out, and `dashboard` is the page.
"""
