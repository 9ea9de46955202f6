# cli tests of hostfile
