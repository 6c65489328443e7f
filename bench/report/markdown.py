from __future__ import annotations
from bench.record import Record


def markdown(records):
    out = []
    for r in records:
        for w in r.workloads:
            for c in w.cells:
                out.append(f"{w.name} {c.target} {c.graph} {c.status} {c.problem}")
                for f in c.figures:
                    out.append(
                        f"   stored {f.stored_bytes / 1e6:.2f} wall {f.wall_s} cpu {f.client_cpu_s} srv {f.server_cpu_s} wal {f.wal_bytes} hist {f.history_s}"
                    )
                    out.append(
                        f"   loads { {k: (v.connect_ms, v.state_ms, v.decode_ms, v.traffic) for k, v in f.loads.items()} }"
                    )
                    out.append(
                        f"   traffic {f.turn_traffic} mem {f.memory} sweep {[(p.threads, p.turns_per_s, p.turn.p99_ms) for p in f.sweep]}"
                    )
            out.append(str(w.limits) + f" {w.turns} {w.checkpoints}")
    return "\n".join(out)
