"""Run folders and the versions that identify a run."""
