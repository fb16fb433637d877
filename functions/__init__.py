"""One folder for each Lambda function; each handler translates an event and thinks nothing."""
