# launcher: ds-launch, ds-agent.
include launcher/front.mk
include launcher/ssh.mk
include launcher/agent.mk
include launcher/sim.mk
include launcher/words.mk
EXTRA_DIST += launcher/README.md
