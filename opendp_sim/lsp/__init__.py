"""``opendp-sim lsp``: findings while typing, hover, completion, the plan's cost."""
