"""Bugs planted in the CUDA kernels: a barrier skipped, a wrong parity, an index off by one, a missing wait. The tests on the emulator
must fail for each. A mutant is the real source with one text changed, compiled to a library that replaces the program's kernels."""
import os
import pathlib
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BATON_BUILD", TOP / "build/debug"))
LONG = bool(os.environ.get("BATON_LONG"))
COMPILER = [*(["ccache"] if shutil.which("ccache") else []), "g++", "-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-ffp-contract=off", "-w",
            "-DCUDA_EMULATED", "-include", str(TOP / "tests/cuda/emulate/device.h"), "-x", "c++", "-c"]

# name: file (.cu, if it doesn't say), old text, new text, test program, its tests. Tuples of texts change together. SHORT ones run by default.
SHORT = {"cluster_begin_not_awaited", "epilogue_rows_of_heads_swapped"}
MUTANTS = {
    "linear_barrier_skipped": ("linear", "copy_async_wait<DEPTH - 2>();\n        block_barrier();", "copy_async_wait<DEPTH - 2>();",
                               "kernels", "test_linear_is_right"),
    "linear_missing_wait": ("linear", "copy_async_wait<DEPTH - 2>();", "copy_async_wait<DEPTH - 1>();", "kernels", "test_linear_is_right"),
    "linear_wrong_parity": ("linear.cuh", "mbarrier_wait(ring.empty + ring.stage * 8, ring.phase ^ 1);",
                            "mbarrier_wait(ring.empty + ring.stage * 8, ring.phase);", "kernels", "test_linear_plans_leave_no_trace"),
    "linear_full_not_awaited": ("linear.cuh", "mbarrier_wait(ring.full + ring.stage * 8, ring.phase);", "", "kernels",
                                "test_linear_plans_leave_no_trace"),
    "linear_released_early": ("linear.cuh", "wgmma_wait<1>(); /* the block before has read its buffer */", "", "kernels",
                              "test_linear_plans_leave_no_trace"),
    "linear_last_product_not_awaited": ("linear.cuh", "    wgmma_wait<0>();\n", "", "kernels", "test_linear_plans_leave_no_trace"),
    "linear_segments_swapped": ("linear.cuh", "partial_at<R, BT>(p, u, first + s);",
                                "partial_at<R, BT>(p, u, p.segments - 1 - first - s);", "kernels",
                                "test_linear_plans_leave_no_trace"),
    "cluster_begin_not_awaited": ("linear.cuh", "    if (p.cluster == 1)\n        block_barrier();\n    else\n        cluster_barrier();", "    block_barrier();", "kernels",
                                  "test_wide_tiles_*"),
    "cluster_end_not_awaited": ("linear.cuh", "    if (p.cluster > 1)\n        cluster_barrier();", "", "kernels", "test_wide_tiles_*"),
    "cluster_copies_to_one": ("linear.cuh", "(1 << ring.cluster) - 1,", "1 << cluster_rank(),", "kernels", "test_wide_tiles_*"),
    "cluster_copies_the_same_part": ("linear.cuh", "part = cluster_rank() * bytes;", "part = 0;", "kernels", "test_wide_tiles_*"),
    "cluster_released_by_one": ("linear.cuh", "mbarrier_init(ring.empty + s * 8, R * 4 * p.cluster);", "mbarrier_init(ring.empty + s * 8, R * 4);", "kernels",
                                "test_wide_tiles_*"),
    "cluster_releases_itself_twice": ("linear.cuh", "mbarrier_arrive_at(empty + read * 8, lane);", "mbarrier_arrive_at(empty + read * 8, cluster_rank());",
                                      "kernels", "test_wide_tiles_*"),
    "cluster_partials_of_one": ("linear.cuh", "(tile - p.whole) * p.cluster + rank;", "(tile - p.whole) * p.cluster;", "kernels", "test_wide_tiles_*"),
    "wide_sums_not_added": ("linear.cuh", "        if (!first) {\n            uint4 v", "        if (false) {\n            uint4 v", "kernels", "test_wide_tiles_*"),
    "wide_sums_of_another_thread": ("linear.cuh", "rest += threadIdx.x * 16;", "rest += threadIdx.x % 128 * 16;", "kernels", "test_wide_tiles_*"),
    "epilogue_tile_off_by_one": ("epilogue.cuh", "if (is_real[h] && 8 * j + e < left) {", "if (is_real[h] && 8 * j + e <= left) {", "kernels",
                                 "test_linear_is_right", "linear"),
    "epilogue_rows_of_the_first_head": ("epilogue.cuh", "return i < pair ? q / block * 2 * pair + ", "return i < pair ? ", "fused",
                                        "test_layers_are_right", "linear"),
    "epilogue_rows_of_heads_swapped": ("epilogue.cuh", "bool odd = threadIdx.x & 4;", "bool odd = !(threadIdx.x & 4);", "fused",
                                       "test_layers_are_right", "linear"),
    "epilogue_words_swapped": ("epilogue.cuh", "return upper ? make_uint2(got, b) : make_uint2(a, got);",
                               "return upper ? make_uint2(b, got) : make_uint2(a, got);", "fused", "test_layers_are_right", "linear"),
    "epilogue_token_of_another_lane": ("epilogue.cuh", "put(token + 8 * j + lane / 16 * 16 + lane / 8 % 2 * 8, 0,",
                                       "put(token + 8 * j + lane / 16 * 8 + lane / 8 % 2 * 16, 0,", "fused", "test_layers_are_right", "linear"),
    "epilogue_rest_not_zero": ("epilogue.cuh", "first + 32 >= whole && k < end;", "false;", "fused",
                               "test_layers_are_right", "linear"),
    "epilogue_head_read_early": ("epilogue.cuh", "        head[0] = end(x);\n    }\n    named_barrier(1, THREADS);", "        head[0] = end(x);\n    }", "fused",
                                 "test_layers_are_right", "linear"),
    "epilogue_head_not_whole": ("epilogue.cuh", "named_barrier(1, THREADS);\n    for (uint32_t i = threadIdx.x;", "for (uint32_t i = threadIdx.x;",
                                "fused", "test_layers_are_right", "linear"),
    "epilogue_slots_taken_early": ("epilogue.cuh", "        }\n    }\n    named_barrier(1, THREADS);\n}\n\n/* Keys and values in s8",
                                   "        }\n    }\n}\n\n/* Keys and values in s8", "fused", "test_*", "linear"),
    "epilogue_warps_descending": ("epilogue.cuh", "x = join(x, head[w * BT]);", "x = join(x, head[(warps - w) * BT]);", "fused",
                                  "test_layers_are_right", "linear"),
    "epilogue_values_turned": ("epilogue.cuh", "at.is_turned = at.head < p.heads + p.kv_heads;", "at.is_turned = at.is_real;", "fused",
                               "test_layers_are_right", "linear"),
    "epilogue_scale_of_the_other_half": ("epilogue.cuh", "if (at.i == 0)", "if (at.i == 8)", "fused", "test_layers_are_right", "linear"),
    "epilogue_scales_of_plain_rows": ("rows", "uint32_t scaled = p.scales_too ? place : n;", "uint32_t scaled = n;", "fused",
                                      "test_layers_are_right"),
    "linear_ticket_left": ("linear.cuh", "*ticket = 0;", ";", "kernels", "test_linear_plans_leave_no_trace"),
    "linear_kernel_ahead_not_awaited": ("linear.cuh", "        } else\n            wait_previous_kernel();", "        }", "kernels",
                                        "test_linear_plans_leave_no_trace"),
    "fp8_promotion_left_out": ("fp8", ("for (; block < end; block++) {\n        float acc[BT / 2];", "inputs + 2 * k, k > 0);", "        promote<T"),
                               ("float acc[BT / 2];\n    for (uint32_t begin = block; block < end; block++) {", "inputs + 2 * k, block > begin || k > 0);",
                                "        if (block + 1 == end)\n            promote<T"), "kernels", "test_fp8_*"),
    "fp8_sum_not_restarted": ("fp8", "inputs + 2 * k, k > 0);", "inputs + 2 * k, true);", "kernels", "test_fp8_*"),
    "fp8_scale_of_another_block": ("linear.cuh", "p.weights.scales + uint64_t(block) * p.weights.scale_rows", "p.weights.scales", "kernels",
                                   "test_fp8_*", "fp8"),
    "fp8_input_scale_of_another_block": ("fp8", "p.scales[uint64_t(block) * p.to.padded + blockIdx.x] = scale;",
                                         "p.scales[uint64_t(block ^ 1) * p.to.padded + blockIdx.x] = scale;", "kernels", "test_fp8_*"),
    "fp8_scale_of_another_token": ("fp8", "BT) + t % 4 * 2;", "BT) + t % 4;", "kernels", "test_fp8_*"),
    "fp8_scale_of_another_row": ("fp8", "high = weights[row + 8];", "high = weights[row];", "kernels", "test_fp8_*"),
    "fp8_product_and_sum_rounded_twice": ("fp8", "sum[4 * j] = fmaf(acc[4 * j], even * low, sum[4 * j]);", "sum[4 * j] += acc[4 * j] * (even * low);",
                                          "kernels", "test_fp8_*"),
    "fp8_fixed_scale_ignored": ("fp8", "float scale = p.fixed.scale;", "float scale = 0;", "kernels", "test_fp8_*"),
    "fp8_fixed_scale_left_out_of_sums": ("fp8", "p.fixed_scale > 0 ? p.fixed_scale : p.input_scales[token]", "p.input_scales[token]", "kernels", "test_fp8_*"),
    "fp8_quotient_by_the_inverse": ("epilogue.cuh", ("    q = fmaf(fmaf(-by.scale, q, x), by.inverse, q);\n    q = fmaf(fmaf(-by.scale, q, x), by.inverse, q);\n",), ("",), "kernels", "test_fp8_*", "fp8"),
    "fp8_infinite_input_made_448": ("epilogue.cuh", "return magnitude_of(x) <= 0x1.fffffep127f ? q", "return x == x ? q", "kernels",
                                    "test_fp8_*", "fp8"),
    "fp8_gated_by_no_scale": ("epilogue.cuh", "return scaled(v[4 * j + e], to.gated_by);", "return v[4 * j + e];", "fused",
                              "test_layers_are_right", "fp8"),
    "fp8_gated_words_swapped": ("epilogue.cuh", "words.x | words.y << 16, words.z | words.w << 16", "words.z | words.w << 16, words.x | words.y << 16", "fused",
                                "test_layers_are_right", "fp8"),
    "fp8_gated_word_of_another_row": ("epilogue.cuh", "        return words.x | words.y << 16;", "        return words.y | words.x << 16;", "fused", "test_layers_are_right", "fp8"),
    "fp8_gated_bytes_of_bf16": ("epilogue.cuh", "put(token, lane / 8 * 2 * AS::BYTES, AS::narrow(two(0)));", "put(token, lane / 8 * 4, AS::narrow(two(0)));", "fused",
                                "test_layers_are_right", "fp8"),
    "fp8_gated_end_of_bf16": ("epilogue.cuh", "end = gated.k_blocks * CUDA_K_BYTES / AS::BYTES", "end = gated.k_blocks * CUDA_K_BYTES / 2", "fused",
                              "test_layers_are_right", "fp8"),
    "fp8_attention_by_no_scale": ("attention.cuh", "pack_e4m3(scaled(low, p.fixed), ", "pack_e4m3(low, ", "fused", "test_layers_are_right",
                                  "attention"),
    "fp8_attention_end_not_zero": ("attention.cuh", "p.heads * p.head_dim * (p.fixed.scale > 0 ? 1 : 2)", "p.heads * p.head_dim * 2", "fused",
                                   "test_layers_are_right", "attention"),
    "fp8_row_that_is_not_finite": ("fp8", "return is_finite ? scale :", "return is_finite || true ? scale :", "kernels", "test_fp8_*"),
    "rows_barrier_skipped": ("rows", "quantizer q = quantizer_of(over_block(largest, slots, most_of<float>()));",
                             "if (threadIdx.x < 128)\n        largest = over_block(largest, slots, most_of<float>());\n    "
                             "quantizer q = quantizer_of(largest);", "kernels", "test_rows_that_are_not_finite"),
    "rows_padding_not_zero": ("rows", "float low = k < p.k ? input_of(p, in, k, factor) : 0.0f;", "float low = input_of(p, in, k, factor);",
                              "kernels", "test_linear_is_right"),
    "rows_eight_pairs_of_a_head": ("rows", "for (uint32_t mask = 1; mask < 8; mask *= 2)", "for (uint32_t mask = 1; mask < 16; mask *= 2)",
                                   "fused", "test_layers_are_right"),
    "attention_rest_not_zero": ("attention.cuh", "head + 1 == p.heads && bytes <", "false &&", "fused", "test_layers_are_right", "attention"),
    "decode_rest_not_zero": ("attention.cuh", "head + 1 == p.heads && bytes <", "false &&", "fused", "test_layers_are_right", "decode"),
    "attention_barrier_skipped": ("attention", "        block_barrier();\n        load();", "        load();",
                                  "attention", "test_attention_is_right"),
    "attention_missing_wait": ("attention", "copy_async_wait<STAGES - 2>();", "copy_async_wait<STAGES - 1>();", "attention",
                               "test_attention_is_right"),
    "attention_run_not_over": ("attention", "    block_barrier(); /* the next run of the tile uses the same memory */\n", "", "attention",
                               "test_mixed_*"),
    "attention_mask_off_by_one": ("attention.cuh", "position >= see.end[h] ||", "position > see.end[h] ||", "attention", "test_attention_is_right",
                                  "attention"),
    "attention_window_off_by_one": ("attention.cuh", "see.end[h] - position > see.window", "see.end[h] - position >= see.window", "attention",
                                    "test_attention_is_right", "attention"),
    "attention_all_seen_too_soon": ("attention.cuh", "first + ATTENTION_SEGMENT_TOKENS <= see.end[h] &&", "first <= see.end[h] &&", "attention",
                                    "test_attention_is_right", "prefill"),
    "attention_end_not_zero": ("attention", "bool is_real = at >= t.low && at < t.high;", "bool is_real = true;", "attention",
                               "test_attention_is_right"),
    "decode_missing_wait": ("decode", "wait_for_copies(in_flight - 1);", "wait_for_copies(in_flight);", "attention", "test_long_*"),
    "decode_ring_too_full": ("decode", "if (in_flight == p.stages ||", "if (in_flight > p.stages ||", "attention", "test_long_*"),
    "decode_next_work_loaded_twice": ("decode", "        ring.loaded -= 2 * now.items();\n", "        ring.loaded = 0;\n", "attention",
                                      "test_long_*"),
    "decode_list_barrier_skipped": ("decode", "        block_barrier();\n        uint32_t at", "        uint32_t at", "attention", "test_*"),
    "decode_merges_too_soon": ("decode", "atomic_add(ticket, 1) + 1 == t.segments", "atomic_add(ticket, 1) + 2 == t.segments", "attention",
                               "test_long_*"),
    "decode_ticket_left": ("decode", "            *ticket = 0;", "            ;", "attention", "test_long_*"),
    "decode_counter_left": ("decode", "        p.tickets[0] = 0;\n", "", "attention", "test_long_*"),
    "decode_segments_swapped": ("decode", "uint64_t(s + i / JOINED) * p.heads", "uint64_t(t.segments - 1 - s - i / JOINED) * p.heads", "attention",
                                "test_long_*"),
    "decode_row_left_unmerged": ("decode", "now.segments <= p.merges", "now.segments < p.merges", "attention", "test_*"),
    "decode_head_of_the_first_segment": ("decode", "float ms = shuffle(one.x, i)", "float ms = shuffle(one.x, 0)", "attention", "test_long_*"),
    "decode_place_of_the_row_before": ("decode", "head, row.w - segments, segments);", "head, row.w, segments);", "attention", "test_long_*"),
    "decode_end_not_zero": ("decode", "all || (at >= t.low && at < t.high)", "true", "attention", "test_long_*"),
    "decode_scale_of_anything": ("decode", "at >= now.low && at < now.high ? scales[token] : 0.0f", "scales[token]", "attention", "test_long_*"),
    "decode_mask_off_by_one": ("decode", "token >= t.high)", "token > t.high)", "attention", "test_long_*"),
    "decode_window_off_by_one": ("decode", "if (token < t.low ||", "if (token + 1 < t.low ||", "attention", "test_long_*"),
    "prefill_full_not_awaited": ("prefill", "        mbarrier_wait(ring.full(s), ring.phase);\n", "", "attention", "test_attention_is_right"),
    "prefill_empty_not_awaited": ("prefill", "        mbarrier_wait(ring.empty(ring.stage), ring.phase ^ 1);\n", "", "attention",
                                  "test_attention_is_right"),
    "prefill_told_too_soon": ("prefill", "        copy_async_wait<LATER>();\n", "", "attention", "test_attention_is_right"),
    "prefill_last_untold": ("prefill", "        while (untold)\n            tell();\n", "", "attention", "test_attention_is_right"),
    "prefill_released_too_soon": ("prefill", "        wgmma_wait<0>();\n        fence_registers(o);", "        fence_registers(o);", "attention",
                                  "test_attention_is_right"),
    "prefill_queries_not_awaited": ("prefill", "            fence_async_shared();\n            named_barrier(1 + group, 128);\n", "", "attention",
                                    "test_attention_is_right"),
    "prefill_queries_changed_too_soon": ("prefill", "            named_barrier(1 + group, 128); /* the run before is multiplied */\n", "", "attention",
                                         "test_plans_*"),
    "prefill_run_released_too_soon": ("prefill", "mbarrier_wait(empty(), (count / 2 & 1) ^ 1);", "", "attention", "test_plans_*"),
    "prefill_widened_over_first_copies": ("prefill", "            if (i == SIDE_CHUNKS)\n                named_barrier(3, COPIERS);\n", "", "attention",
                                          "test_attention_is_right"),
    "prefill_widened_over_last_copies": ("prefill", "        named_barrier(3, COPIERS);\n#pragma unroll\n        for (uint32_t i = LAST;",
                                         "#pragma unroll\n        for (uint32_t i = LAST;", "attention", "test_attention_is_right"),
    "prefill_values_widened_as_keys": ("prefill", "told++ % 4 / 2", "told++ % 8 / 4", "attention", "test_attention_is_right"),
    "prefill_scale_of_anything": ("prefill", "at >= t.low && at < t.high;\n        uint32_t inside", "true;\n        uint32_t inside", "attention",
                                  "test_attention_is_right"),
    "prefill_units_off_by_one": ("prefill", "round % 2 ? gridDim.x - 1 - blockIdx.x", "round % 2 ? gridDim.x - blockIdx.x", "attention",
                                 "test_plans_*"),
    "gather_piece_off_by_one": ("gather", "p.moves[at + 1].first_piece <= piece", "p.moves[at + 1].first_piece < piece", "kernels", "test_gather"),
    "gather_end_not_seen": ("gather", "if (byte < left)\n                store", "store", "kernels", "test_gather"),
    "sample_equals_off_by_one": ("sample", "&& ++before == b.nth)", "&& before++ == b.nth)", "sample", "*"),
    "sample_draw_off_by_one": ("sample", "return sure ? id : pick_in_order(r, bound, unit);", "return id + 1;", "sample", "*"),
}


def changes(name):
    """The file, and its (old, new) texts."""
    file, old, new, *_ = MUTANTS[name]
    return file if "." in file else f"{file}.cu", list(zip(old, new)) if isinstance(old, tuple) else [(old, new)]


def test_every_mutant_has_a_place():
    for name in MUTANTS:
        file, texts = changes(name)
        for old, _ in texts:
            assert (TOP / "kernels/cuda/device" / file).read_text().count(old) == 1, name


@pytest.mark.parametrize("name", [name for name in MUTANTS if LONG or name in SHORT])
def test_mutant_is_caught(name, tmp_path):
    file, texts = changes(name)
    program, tests, *unit = MUTANTS[name][3:]
    folder = tmp_path / "kernels/cuda/device"
    folder.mkdir(parents=True)
    text = (TOP / "kernels/cuda/device" / file).read_text()
    for old, new in texts:
        text = text.replace(old, new)
    (folder / file).write_text(text)
    unit = (unit or [file.split(".")[0]])[0] + ".cu"  # compiled; it may include the file
    source = folder / unit if (folder / unit).exists() else TOP / "kernels/cuda/device" / unit
    subprocess.run([*COMPILER[:-1], f"-I{tmp_path}", f"-I{TOP}", "-c", source, "-o", tmp_path / "mutant.o"], check=True)
    subprocess.run(["g++", "-shared", tmp_path / "mutant.o", "-o", tmp_path / "mutant.so"], check=True)
    run = [BUILD / "tests" / f"test_cuda_{program}", tests]
    # Tests catch mutants by their default cases. Leaks of a failed test are of no interest.
    env = {**os.environ, "BATON_CUDA_MUTANT": str(tmp_path / "mutant.so"), "ASAN_OPTIONS": "detect_leaks=0"}
    env.pop("BATON_LONG", None)
    mutant = subprocess.run(run, env=env, capture_output=True, text=True)
    assert mutant.returncode != 0 and "BATON_CUDA_MUTANT" not in mutant.stderr, mutant.stdout
