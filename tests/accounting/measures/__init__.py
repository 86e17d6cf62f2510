"""Tests of accounting.measures."""
