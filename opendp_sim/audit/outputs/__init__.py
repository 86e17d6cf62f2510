"""Encode outputs as symbols, numbers and events."""
