"""Find what code reaches, and the state that it keeps."""
