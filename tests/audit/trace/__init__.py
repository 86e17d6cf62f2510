"""Tests of audit.trace."""
