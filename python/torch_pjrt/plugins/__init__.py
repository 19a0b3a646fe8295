"""One module per vendor: data, no logic. The only place in the project that names vendors."""
