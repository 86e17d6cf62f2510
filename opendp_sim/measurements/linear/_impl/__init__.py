"""Share rows, residuals, whitening and step rules of linear models."""
