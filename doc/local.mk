# doc
dist_man_MANS += doc/ds-hostfile.5
dist_man_MANS += doc/ds-launch.1
