"""The pure core: formats and rules, without I/O, clocks, event loops, drivers or LangGraph.

In import order, each module using only those before it:

    model, strings, identifiers     records and ids
    compress, frame                 sealed payloads
    imprint, metadata, containment  proofs that nothing changed; metadata, and searching it
    memo, codec                     values to items and back
    pieces, header, writes, state   what a checkpoint is made of
    payload                         documents of rows
    chain, draft, sweep             rows to states, puts to rows, what may be removed
"""
