"""Who is asking, and what they may do: keys, access tokens and AWS's front doors."""
