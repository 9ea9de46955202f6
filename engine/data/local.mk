# engine/data
libdsengine_a_SOURCES +=
