# engine/device
libdsengine_a_SOURCES +=
