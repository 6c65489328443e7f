"""LangGraph's checkpoints and our records: what the adapter and the importer both need."""
