"""Files, text, GPU facts and locks of this machine; imports no other room of the grader."""
