"""Verify a certificate from its numbers."""
