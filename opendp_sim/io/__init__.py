"""Read records through the gate.

Arrays, frames, CSV and Parquet files.
"""
