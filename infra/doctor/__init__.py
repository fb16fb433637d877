"""Checks of an AWS account and of this machine before a deployment; ``make deploy`` runs them.

    python -m infra.doctor --stage dev --region eu-central-1
    vectorforge doctor --aws --stage dev        in a checkout, the same

No check raises, changes anything or costs money.
"""
