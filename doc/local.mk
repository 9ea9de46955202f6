# doc: manual pages
dist_man_MANS += doc/ds-job.5
dist_man_MANS += doc/ds-hostfile.5
dist_man_MANS += doc/ds-launch.1
EXTRA_DIST += doc/README.md doc/completion/README.md
# bash looks for completions under the command's own name
bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = doc/completion/ds-launch
