"""What each Lambda function does with its events."""
