"""Tests of dsl.run."""
