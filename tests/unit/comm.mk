# unit tests of comm
