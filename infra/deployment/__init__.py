"""Commands behind ``make synth``, ``deploy``, ``destroy`` and ``audit``, over the pinned CDK."""
