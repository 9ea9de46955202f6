# mesh, tensor, param, ops, model, zero, optim, train and the rank's main program
libdsengine_a_SOURCES +=
