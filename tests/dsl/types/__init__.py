"""Tests of dsl.types."""
