"""Plan a program: losses, scales, expected errors."""
