# launcher: ds-launch, ds-agent.
include launcher/front.mk
