"""CPU bandwidth control: profiles of it, what they reveal, and what it makes of a task.

The closed form, the simulator and the probe are Rust (``crates/bandwidth``, ``uncia-engine cpu``).
"""
