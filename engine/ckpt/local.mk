# engine/ckpt
libdsengine_a_SOURCES +=
