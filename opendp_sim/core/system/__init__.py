"""Files, memory, threads, and text from outside."""
