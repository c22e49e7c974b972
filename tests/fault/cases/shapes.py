"""The fleets that cases share. Times are short, so that what waits for them is tested too, and long enough for a busy machine."""
import os

from runner import Shape

LONG = bool(os.environ.get("BATON_LONG"))
# A worker touches its whole pool at its start, and half of the cases start some.
WORKERS = {"lease": "4s", "heartbeat": "100ms", "read-timeout": "1s", "peer-timeout": "500ms", "kv-tokens": 16384 if LONG else 4096}
SHORT = WORKERS | {"lease": "1500ms", "read-timeout": "500ms"}

NORMAL = Shape("normal", workers=WORKERS)
PATIENT = Shape("patient", workers=WORKERS | {"lease": "60s", "peer-timeout": "60s"})
# Cases that name no worker, or ask until the one that they name has its share.
GOODPUT = Shape("goodput", workers=WORKERS, router={"placement-policy": "goodput"})
PAIR = Shape("pair", prefill=1, decode=1, workers=WORKERS, router={"local-prefill-wait": "1s"})
SHORT_LEASE = Shape("short-lease", workers=SHORT)
QUICK_ROUTER = Shape("quick-router", workers=WORKERS, router={"worker-keepalive": "100ms"})
FAULTY = Shape("faulty", workers=WORKERS)
