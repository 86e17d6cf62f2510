"""Tests of audit.outputs."""
