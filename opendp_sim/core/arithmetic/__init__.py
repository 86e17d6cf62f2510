"""Exact integer kernels and outward rounding."""
