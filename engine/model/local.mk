# engine/model: the list of layers and the built-in ones
libdsengine_a_SOURCES += engine/model/model.h
