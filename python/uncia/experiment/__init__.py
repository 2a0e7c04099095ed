"""Experiments: the file that describes them, the plan it comes to, the run that carries it out."""
