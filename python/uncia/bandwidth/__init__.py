"""CPU bandwidth control: profiles of it, inference from profiles, and models of durations.

The closed form, the simulator and the probe are Rust (``crates/bandwidth``, ``uncia-engine cpu``).
"""
