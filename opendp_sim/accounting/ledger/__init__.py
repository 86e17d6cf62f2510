"""The ledger of a dataset: a file, or PostgreSQL."""
