"""Charts and sections of the analyses of CPU bandwidth control."""
