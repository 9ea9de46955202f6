# elastic
EXTRA_DIST += elastic/README.md
