"""One module for each contestant, with a class ``Contestant``; run in its own environment."""
