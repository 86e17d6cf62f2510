"""Validate tables, bounds and public facts."""
