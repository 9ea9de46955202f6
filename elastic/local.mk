# elastic
