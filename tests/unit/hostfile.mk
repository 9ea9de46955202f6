# unit tests of hostfile
