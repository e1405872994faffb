"""Export results.json to other platforms, and run the grader on those platforms."""
