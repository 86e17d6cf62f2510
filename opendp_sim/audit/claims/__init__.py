"""Compute what a claim allows."""
