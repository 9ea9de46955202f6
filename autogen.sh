#!/bin/sh
# Makes configure and Makefile.in from configure.ac and Makefile.am. Needed only in a checkout.
set -e
cd "$(dirname "$0")"
mkdir -p build-aux
exec autoreconf --install --force "$@"
