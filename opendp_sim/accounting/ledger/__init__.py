"""Keep the ledger of a dataset, in a file or PostgreSQL."""
