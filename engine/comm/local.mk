# engine/comm
libdsengine_a_SOURCES += engine/comm/comm.c engine/comm/core.c engine/comm/self.c \
	engine/comm/boot_world.c engine/comm/reduce.c engine/comm/wait.c engine/comm/region.c \
	engine/comm/local.c engine/comm/chain.c engine/comm/swap.c engine/comm/pair.c engine/comm/net.c \
	engine/comm/auth.c engine/comm/group.c \
	engine/comm/comm.h engine/comm/core.h engine/comm/group.h engine/comm/reduce.h
EXTRA_DIST += engine/comm/README.md
