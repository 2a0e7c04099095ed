"""The folder of a run and what identifies it, whatever made the run."""
