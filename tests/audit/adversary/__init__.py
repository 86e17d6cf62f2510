"""Tests of audit.adversary."""
