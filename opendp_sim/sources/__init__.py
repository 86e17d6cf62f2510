"""Where records come from: one protocol over arrays, chunks and files, and the gate they pass."""
