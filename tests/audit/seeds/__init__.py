"""Tests of audit.seeds."""
