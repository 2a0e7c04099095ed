"""Sections of the pages of cost analyses, a module for each analysis."""
