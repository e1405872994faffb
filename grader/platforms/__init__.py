"""Files that other platforms read, each made from results.json, and what runs the grader on them."""
