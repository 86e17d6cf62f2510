"""Tests of dsl.text."""
