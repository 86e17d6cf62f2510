"""Tests of audit.generators."""
