"""Uncia weighs serverless functions: what they cost in time, in money and in machine."""

__version__ = "0.1.0"
