"""What a laptop needs in place of AWS."""
