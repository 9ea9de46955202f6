# launcher: ds-launch, ds-agent.
