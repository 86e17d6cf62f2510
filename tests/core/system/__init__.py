"""Tests of core.system."""
