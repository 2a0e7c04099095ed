"""Pages and sections of the analyses of CPU bandwidth control, a module for each."""
