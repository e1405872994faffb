"""The tree that students get, made from this one, and the proof that no answer is in it; imports no torch."""
