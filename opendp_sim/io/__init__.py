"""Read records: arrays, frames, CSV and Parquet files, and the gate they pass."""
