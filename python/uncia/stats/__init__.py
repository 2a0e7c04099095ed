"""Statistics of runs: quantiles with their intervals, TMR/MR/TR, bootstrap, summaries, gates.

Everything here reads Arrow tables in the form that `uncia.record` fixes and knows nothing of how
they came about. One definition of a quantile is used everywhere (`uncia.stats.quantiles`).
"""
