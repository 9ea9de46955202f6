# engine/comm
libdsengine_a_SOURCES +=
