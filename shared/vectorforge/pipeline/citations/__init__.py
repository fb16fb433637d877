"""Citations: labels in the answer, their check against the chunks, and the answer's quality."""
