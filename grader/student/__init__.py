"""What a student uses around a graded run: watch, hint, reset, doctor, inspect."""
