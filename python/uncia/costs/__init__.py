"""What a workload costs, why, and what to change: analyses of tables under tariffs.

One module an analysis; each has a function that returns a pandas DataFrame, one row for each tariff
(or as its docstring says), with exact amounts as `decimal.Decimal`.
"""
