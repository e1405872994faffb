"""What was found: outcomes, and the model of results.json."""
