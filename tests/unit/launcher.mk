# unit tests of launcher
