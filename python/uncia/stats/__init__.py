"""Statistics of runs: quantiles with their intervals, TMR/MR/TR, bootstrap, summaries, gates.

Everything here reads Arrow tables with the schemas of `uncia.record`, whatever wrote them. All
quantiles have the definition of `uncia.stats.quantiles`.
"""
