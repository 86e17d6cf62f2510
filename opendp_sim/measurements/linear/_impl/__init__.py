"""What the linear models share: rows, residuals, whitening, the rule of the steps, the reader."""
