"""Name, stage and write the files of a run."""
