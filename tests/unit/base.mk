# unit tests of base
