# doc: manual pages
dist_man_MANS += doc/ds-job.5
dist_man_MANS += doc/ds-hostfile.5
dist_man_MANS += doc/ds-launch.1
EXTRA_DIST += doc/README.md
