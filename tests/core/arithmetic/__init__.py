"""Tests of core.arithmetic."""
