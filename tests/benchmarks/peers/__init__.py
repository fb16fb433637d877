"""The same job done by this service, by hand and with other frameworks, side by side."""
