"""Tests of dsl.grammar."""
