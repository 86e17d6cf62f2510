"""Tests of dsl.plan."""
