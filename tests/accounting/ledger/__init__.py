"""Tests of accounting.ledger."""
