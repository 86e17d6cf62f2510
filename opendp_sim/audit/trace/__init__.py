"""Audit along a tape of draws."""
