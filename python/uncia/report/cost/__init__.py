"""Sections of the pages that the cost analyses write; a module an analysis."""
