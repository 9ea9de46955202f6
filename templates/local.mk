# templates: job files, model presets and a hostfile, installed as they are
templatesdir = $(pkgdatadir)/templates
dist_templates_DATA = templates/hostfile.example templates/quickstart.ini \
	templates/gpt2-124m.ini templates/llama-small.ini
templatemodelsdir = $(templatesdir)/models
dist_templatemodels_DATA = templates/models/gpt2-124m.ini templates/models/llama-60m.ini
EXTRA_DIST += templates/README.md
EXTRA_DIST += templates/models/README.md
