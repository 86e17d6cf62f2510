"""Declare every section of a spec once."""
