# templates
dist_pkgdata_DATA = templates/hostfile.example
