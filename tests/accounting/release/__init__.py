"""Tests of accounting.release."""
