"""The commands of the vectorforge program, one file each."""
