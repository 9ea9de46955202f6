# engine/device
libdsengine_a_SOURCES += engine/device/device.c engine/device/cpu.c engine/device/cpu_memory.c \
	engine/device/cpu_memory.h engine/device/device.h
EXTRA_DIST += engine/device/README.md
