"""The main job, shown to a newcomer: a long conversation of an agent, a `kill -9`, a resume, and what it cost to store.

    conversation.py   what is said: a recorded trace, or text from Python's standard library
    graph.py          the agent graph that replays it, with ordinary channels or with a DeltaChannel
    savers.py         deltastore and the stock saver, each in a schema of its own
    worker.py         the process that runs the graph and may be killed at any moment
    show.py           runs workers, kills one, checks states, measures
    screen.py         progress bars and the table

No model is called: the agent says what the conversation says next, at the position where the state stands. So the state
is right exactly if it equals the beginning of the conversation, whatever was killed and resumed.
"""
