"""Infer the type of every stage and output."""
