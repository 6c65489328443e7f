"""The adapter to LangGraph: its configs, checkpoints and calls on one side, the engine's records on the other.

validate.py     what callers may give, checked before anything is sent
convert.py      LangGraph's checkpoints, metadata and writes to our records and back
serializer.py   the default serializer
calls.py        calls of the saver, as functions of the engine
bridge.py       one event loop for the engine, reached from any thread or loop
saver.py        the checkpointer: every method converts, calls the engine, converts
"""
