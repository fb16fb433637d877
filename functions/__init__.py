"""One folder for each Lambda function; handlers only translate events."""
