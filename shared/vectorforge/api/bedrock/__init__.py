"""Knowledge Bases API of Amazon Bedrock (``bedrock-agent-runtime``), for clients that change one URL."""
