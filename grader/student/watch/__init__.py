"""`make watch`: grade again what each save has changed, and keep the last result on screen."""
