"""Report verdicts and counterexamples."""
