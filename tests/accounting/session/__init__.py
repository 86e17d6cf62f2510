"""Tests of accounting.session."""
