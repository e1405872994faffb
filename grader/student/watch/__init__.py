"""`make watch`: grade again whatever a save has changed, and keep the last result on screen."""
