"""Plan a program's losses, scales and expected errors."""
