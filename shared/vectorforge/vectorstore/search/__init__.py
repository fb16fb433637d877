"""Search for chunks: plan, statement, lexical ranking and rows."""
