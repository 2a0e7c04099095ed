"""Predictions of durations and bills at every size of a platform, from a function's CPU time.

`measured` reads tables of measurements; `cpu` gets the CPU time from them or from a text, `invert`
from small sizes alone; `model` predicts, by simulating tasks at all sizes; `bill` prices; `advice`
says which sizes to take and which to avoid; `study` combines them. The model and its evidence:
docs/reference/cpu-prediction.md.
"""
