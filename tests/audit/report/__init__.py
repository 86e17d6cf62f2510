"""Tests of audit.report."""
