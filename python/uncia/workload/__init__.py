"""Workloads: arrival processes, mixes of functions, replays, and the load generator."""
