"""``make deploy-local``: the production stacks, deployed into LocalStack on this machine."""
