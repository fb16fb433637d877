"""AWS services on sockets, features that its emulators lack, and the events and output of functions."""
