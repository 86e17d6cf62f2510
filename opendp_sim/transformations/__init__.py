"""Transform records into rows, and rows into sketches.

A sketch sums one bounded vector a record.
"""
