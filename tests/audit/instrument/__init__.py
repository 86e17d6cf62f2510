"""Tests of audit.instrument."""
