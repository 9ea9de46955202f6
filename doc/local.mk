# doc
dist_man_MANS += doc/ds-hostfile.5
