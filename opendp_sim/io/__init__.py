"""Read records of arrays, frames and files through the gate."""
