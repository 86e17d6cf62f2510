"""Budgets, ledgers, filters and releases."""
