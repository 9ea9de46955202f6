# cli tests of launcher
