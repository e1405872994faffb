"""What is asked: labs, exercises, cases, TODOs, hints and skeletons."""
