"""The vocabulary: the kind, its names, its conditions, and the CRD rendered from them. Pure."""
