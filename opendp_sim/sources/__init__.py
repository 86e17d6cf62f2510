"""Where records come from: one protocol of blocks."""
