# cli tests of engine
