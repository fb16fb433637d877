"""The same job done by this service, by hand-written code and by other frameworks."""
