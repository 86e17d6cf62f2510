"""Transform records into rows, and rows into summed sketches."""
