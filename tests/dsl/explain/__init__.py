"""Tests of dsl.explain."""
