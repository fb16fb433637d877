"""AWS on sockets, what its emulators lack, and what functions get from it and print for it."""
