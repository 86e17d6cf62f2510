"""Tests of audit.statistics."""
