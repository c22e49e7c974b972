"""The benchmarks' figures beside what is wanted of them, all ratios within one run: shares of the copy rate and of cuBLASLt's rate,
int8 and fp8 over bf16. Bounds and the prototype's and PyTorch's figures (an H200) are those of docs/benchmarks/gpu.md."""

# (name, key, must, aim, prototype, PyTorch compiled)
BOUNDS = [
    ("decode 1 at 1k, share of copy", "decode.1.1024", 0.70, 0.88, 0.79, 0.75),
    ("decode 16 at 1k, share of copy", "decode.16.1024", 0.68, 0.86, 0.76, 0.73),
    ("decode 64 at 1k, share of copy", "decode.64.1024", 0.66, 0.84, 0.77, 0.67),
    ("decode 16 at 8k, share of copy", "decode.16.8192", 0.68, 0.86, 0.78, None),
    ("decode 4 at 64k, share of copy", "decode.4.65536", 0.68, 0.86, 0.78, None),
    ("prefill 2048 over cuBLASLt 8192^3", "prefill.2048", 0.82, 0.98, 0.95, 0.83),
    ("prefill 8192 over cuBLASLt 8192^3", "prefill.8192", 0.75, 0.93, 0.87, 0.77),
    ("int8 over bf16: decode 1", "int8.1", 1.3, 1.8, 1.43, None),
    ("int8 over bf16: decode 64", "int8.64", 1.1, 1.5, 1.15, None),
    ("int8 over bf16: prefill 2048", "int8.2048", 1.4, 1.75, 1.62, None),
    ("fp8 over bf16: linear layers at M = 1", "fp8.1", 1.6, 1.9, 1.9, None),
    ("fp8 over bf16: linear layers at M = 64", "fp8.64", 1.3, 1.8, 1.5, None),
    ("fp8 over bf16: linear layers at M = 8192", "fp8.8192", 1.25, 1.8, 1.45, None),
    ("fp8 by blocks over bf16: M = 1", "fp8b.1", 1.6, 1.9, None, None),
    ("fp8 by blocks over bf16: M = 64", "fp8b.64", 1.3, 1.8, None, None),
    ("fp8 by blocks over bf16: M = 8192", "fp8b.8192", 1.25, 1.8, None, None),
    ("device busy between decode steps", "busy", 0.95, 0.995, None, None),
    ("lane, 64 KiB runs, 32 CTAs, share of copy", "lane.32", 0.20, 0.25, 0.25, None),
    ("lane, 64 KiB runs, 132 CTAs, share of copy", "lane.132", 0.38, 0.45, 0.46, None),
    ("lane, a memcpy for each run, share of copy", "lane.memcpy", None, None, 0.003, None),
    ("ms from a chunk of 2048 to its copy", "lane.chunk", 1, 0.3, 0.26, None),  # less is better
]


def of_part(results, name):
    return next((row["facts"].get("figures", []) for row in results["parts"] if row["part"] == name), [])


def steps_of(results):
    return [figure for name in ("decode", "long", "longest", "int8", "fp8", "fp8-blocks") for figure in of_part(results, name)]


def layer_time(results, weights, rows):
    """Microseconds of all layers of the shape and its head; None: not timed."""
    times = {f["layer"]: f["us"] for f in of_part(results, "linear") if f.get("type") == weights and f["rows"] == rows}
    if not {"qkv", "o", "gate_up", "down"} <= set(times):
        return None
    return 32 * sum(times[name] for name in ("qkv", "o", "gate_up", "down")) + times.get("head", 0)


def of(results):
    """{key: our figure}, of all that were measured in this run; {"torch." + key: PyTorch's}."""
    found = {}
    steps = steps_of(results)
    products = [f["gflops"] for name in ("cublas", "torch") for f in of_part(results, name) if f.get("name") == "product"]
    for f in steps:
        if f["kind"] == "decode" and f["weights"] == "bf16":
            found[f"decode.{f['batch']}.{f['depth']}"] = f["of_read"]
            found["busy"] = min(found.get("busy", 1), f["ran"])
        elif f["weights"] == "bf16" and products:
            found[f"prefill.{f['tokens']}"] = f["gflops"] / products[0]
    rates = {(f["weights"], f.get("batch") if f["kind"] == "decode" else f["tokens"]): f["tokens_per_s"] for f in steps}
    for (weights, size), rate in rates.items():
        if weights != "bf16" and ("bf16", size) in rates:
            found[f"int8.{size}" if weights == "int8" else f"{weights}.step.{size}"] = rate / rates["bf16", size]
    for rows in (1, 64, 8192):
        bf16 = layer_time(results, "bf16", rows)
        for weights in ("fp8", "fp8b"):
            if bf16 and layer_time(results, weights, rows):
                found[f"{weights}.{rows}"] = bf16 / layer_time(results, weights, rows)
    for f in of_part(results, "lane"):
        if "ms" in f:
            found["lane.chunk"] = f["ms"]
        else:  # "64 KiB runs and up": the slowest size counts
            key = f"lane.{f['blocks']}" if f["lane"] == "gather" else "lane.memcpy"
            found[key] = min(found.get(key, f["of_copy"]), f["of_copy"])
    for f in of_part(results, "torch"):
        if f.get("name", "").startswith("decode"):
            found["torch." + f["name"]] = f["of_copy"]
        elif f.get("name", "").startswith("prefill") and products:
            found["torch." + f["name"]] = f["gflops"] / products[0]
    return found


def bound(value):
    return f"{'-':>6}" if value is None else f"{value:6.2f}"


def table(results):
    """Lines; none if nothing was measured."""
    mine = results["figures"]
    rows = [row for row in BOUNDS if row[1] in mine]
    if not rows:
        return
    yield f"\n  {'':42} {'here':>7} {'must':>6} {'aim':>6} {'prototype':>10} {'PyTorch':>8} {'here':>6}"
    for name, key, must, aim, prototype, torch in rows:
        sign = -1 if must is not None and must > aim else 1
        said = "" if results["dry"] or must is None else "missed" if sign * mine[key] < sign * must else "aim" if sign * mine[key] >= sign * aim else "must"
        other = mine.get("torch." + key)
        yield (f"  {name:42} {mine[key]:7.3f} {bound(must)} {bound(aim)} {prototype if prototype else '-':>10} {torch if torch else '-':>8} "
               f"{f'{other:.2f}' if other else '-':>6}  {said}")
