"""Tests of accounting.certificate."""
