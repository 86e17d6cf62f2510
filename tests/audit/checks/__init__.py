"""Tests of audit.checks."""
