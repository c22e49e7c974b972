/* device_speed [--scale N] [--rows M,...] [--plans TYPE] [--lane BLOCKS,...]: the linear layers of
 * an 8B Llama shape on a device, by its events, for each type of weights that it computes, and the
 * rate of a copy inside it. With --plans: layers of this type by every plan that they could take.
 * With --lane: that rate, and instead of layers the lane cuda: gathers of so many blocks a launch,
 * copies of a call each, and how long after a chunk its blocks are copied. Prints an object of JSON
 * a line. Layers take turns with copies of their own, so that no weights are in a cache. `--scale`
 * divides N and K (checks of this program without a GPU).
 *
 * BATON_TEST_DEVICE names the device (default: cpu). */
#include "common/base/rng.h"
#include "common/base/u32.h"
#include "kernels/cuda/cuda.h"
#include "tests/device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_ROWS  64
#define MOST_COPIES 4
#define MOST_SIZES  16
#define CACHE_BYTES ((size_t)256 << 20) /* copies together are at least as large */
#define LEAST_US    3000
#define MOST_RUNS   256

static const struct {
    const char *name;
    uint32_t n, k;
} layers[] = {{"qkv", 6144, 4096},
              {"o", 4096, 4096},
              {"gate_up", 28672, 4096},
              {"down", 4096, 14336},
              {"head", 128256, 4096}};
enum { LAYERS = sizeof layers / sizeof *layers };

static struct kernels *kernels;

static void must(enum status status, const char *what)
{
    if (status == STATUS_OK)
        return;
    fprintf(stderr, "device_speed: %s: %s\n", what, status_name(status));
    exit(1);
}

static void *memory(size_t bytes)
{
    void *made = malloc(bytes ? bytes : 1);
    must(made ? STATUS_OK : STATUS_LIMIT, "memory");
    return made;
}

/* Fills a layer with drawn bytes that are finite numbers in every type. */
static struct linear make_layer(enum weight_type type, uint32_t n, uint32_t k)
{
    struct linear linear;
    must(kernels_linear_create(kernels, type, n, k, &linear), "a layer");
    size_t bytes = BLOCK_ROWS * weight_row_bytes(type, k);
    size_t scale_count = (size_t)BLOCK_ROWS * weight_row_scales(type, k);
    uint8_t *rows = memory(bytes);
    float *scales = memory(scale_count * sizeof *scales);
    struct rng rng = rng_seeded(n + k);
    for (size_t i = 0; i < bytes; i++)
        rows[i] = (uint8_t)((rng_next(&rng) & (i % 2 ? 0x80 : 0xf7)) | (i % 2 ? 0x3c : 0));
    for (size_t i = 0; i < scale_count; i++)
        scales[i] = 0x1p-9f;
    for (uint32_t row = 0; row < n; row += BLOCK_ROWS)
        must(kernels_linear_load(kernels, &linear, row, min_u32(BLOCK_ROWS, n - row), rows,
                                 scale_count ? scales : NULL),
             "loading a layer");
    must(kernels_sync(kernels), "loading a layer");
    free(rows);
    free(scales);
    return linear;
}

static struct buffer make_inputs(uint32_t rows, uint32_t k)
{
    struct buffer in;
    size_t count = (size_t)rows * k;
    struct rng rng = rng_seeded(7);
    float *values = memory(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(2 * rng_unit(&rng) - 1);
    must(kernels_alloc(kernels, count * sizeof *values, &in), "inputs");
    must(kernels_upload(kernels, KERNELS_STEPS, &in, 0, values, count * sizeof *values), "inputs");
    must(kernels_sync(kernels), "inputs");
    free(values);
    return in;
}

/* Returns the microseconds of one run, with layer after layer. */
static double time_layer(struct linear *copies, uint32_t copy_count, const struct buffer *in,
                         uint32_t rows, struct buffer *out)
{
    uint64_t us = 0;
    uint32_t runs = copy_count;
    for (bool first = true;; first = false) {
        kernels_event begin, end;
        must(kernels_record(kernels, KERNELS_STEPS, &begin), "an event");
        for (uint32_t i = 0; i < runs; i++)
            must(kernels_linear(kernels, &copies[i % copy_count], in, rows, false, out), "a layer");
        must(kernels_record(kernels, KERNELS_STEPS, &end), "an event");
        must(kernels_wait(kernels, KERNELS_STEPS, end), "a layer");
        us = kernels_event_us(kernels, KERNELS_STEPS, begin, end);
        if ((us >= LEAST_US && !first) || runs >= MOST_RUNS)
            return (double)us / runs;
        if (us < LEAST_US)
            runs *= 2;
    }
}

/* Prints the time by the plan that is chosen, and the least time of all plans of the layer. */
static void time_plans(struct linear *copies, uint32_t copy_count, const char *layer,
                       const struct buffer *in, uint32_t rows, struct buffer *out)
{
    struct cuda_target *target = &((struct cuda *)kernels->state)->target;
    char chosen[CUDA_PLAN_NAME_BYTES], best[CUDA_PLAN_NAME_BYTES];
    cuda_linear_plan_name(target, copies, rows, chosen);
    memcpy(best, chosen, sizeof best);
    double chosen_us = time_layer(copies, copy_count, in, rows, out), best_us = chosen_us;
    uint32_t plans = cuda_linear_plans(target, copies, rows);
    for (target->linear_plan = 1; target->linear_plan <= plans; target->linear_plan++) {
        double us = time_layer(copies, copy_count, in, rows, out);
        if (us < best_us)
            cuda_linear_plan_name(target, copies, rows, best);
        best_us = us < best_us ? us : best_us;
    }
    target->linear_plan = 0;
    printf("{\"type\": \"%s\", \"layer\": \"%s\", \"rows\": %u, \"plans\": %u, "
           "\"chosen\": \"%s\", \"chosen_us\": %.2f, \"best\": \"%s\", \"best_us\": %.2f}\n",
           weight_type_names[copies->type], layer, rows, plans, chosen, chosen_us, best, best_us);
    fflush(stdout);
}

static void time_type(enum weight_type type, const uint32_t *sizes, uint32_t size_count,
                      uint32_t scale, bool plans)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        struct linear copies[MOST_COPIES];
        uint32_t n = divide_up(layers[l].n, scale), k = divide_up(layers[l].k, scale), count = 0;
        size_t bytes = kernels_linear_bytes(kernels, type, n, k);
        while (count < MOST_COPIES && (count == 0 || (scale == 1 && count * bytes < CACHE_BYTES)))
            copies[count++] = make_layer(type, n, k);
        for (uint32_t m = 0; m < size_count; m++) {
            uint32_t rows = l == LAYERS - 1 ? min_u32(sizes[m], 128) : sizes[m];
            if (rows != sizes[m])
                continue; /* the head sees rows that draw tokens alone */
            struct buffer in = make_inputs(rows, k), out;
            must(kernels_alloc(kernels, (size_t)rows * n * sizeof(float), &out), "results");
            if (plans)
                time_plans(copies, count, layers[l].name, &in, rows, &out);
            else
                printf("{\"type\": \"%s\", \"layer\": \"%s\", \"rows\": %u, \"bytes\": %zu, "
                       "\"flop\": %.0f, \"us\": %.2f}\n",
                       weight_type_names[type], layers[l].name, rows, bytes,
                       2.0 * rows * (double)n * (double)k,
                       time_layer(copies, count, &in, rows, &out));
            fflush(stdout);
            kernels_free(kernels, &in);
            kernels_free(kernels, &out);
        }
        while (count)
            kernels_linear_destroy(kernels, &copies[--count]);
    }
}

static void time_copy(size_t bytes)
{
    struct buffer source;
    must(kernels_alloc(kernels, bytes, &source), "memory for the copy");
    uint64_t ns = 0, best = UINT64_MAX;
    for (int round = 0; round < 5; round++) {
        ns = kernels_measure_read(kernels, &source);
        best = ns && ns < best ? ns : best;
    }
    printf("{\"copy_gbs\": %.2f}\n", (double)bytes / (double)best);
    kernels_free(kernels, &source);
}

/* --- the lane cuda --- */

#define RUN_BYTES   ((uint64_t)64 << 10)
#define BLOCK_BYTES ((uint64_t)4 << 20) /* 32 tokens of the 8B shape, KV in bf16 */
#define CHUNK_ROWS  2048
#define LANE_BLOCKS 32 /* the lane's on a large GPU */

/* Fills in moves that lie apart, number `first` and those behind it. Returns how many. */
static uint32_t scatter(struct kv_move *moves, uint64_t first, uint64_t count, uint64_t pool_bytes,
                        uint64_t run_bytes)
{
    uint64_t runs = pool_bytes / run_bytes; /* a power of two */
    uint32_t moved = 0;
    for (; moved < KV_MOVES_AT_ONCE && moved < runs && first + moved < count; moved++)
        moves[moved] = (struct kv_move){(first + moved) * 7919 % runs * run_bytes,
                                        (first + moved) * 7907 % runs * run_bytes, run_bytes};
    return moved;
}

/* Queues `count` runs in KERNELS_TRANSFERS: by gathers, or by a copy for each run. */
static enum status queue_runs(const struct buffer *source, struct buffer *target, uint64_t count,
                              uint64_t run_bytes, bool gathers)
{
    struct kv_move moves[KV_MOVES_AT_ONCE];
    for (uint64_t at = 0; at < count;) {
        uint32_t moved = scatter(moves, at, count, source->bytes, run_bytes);
        if (gathers)
            TRY(kernels_gather(kernels, source, target, moves, moved));
        for (uint32_t i = 0; i < moved && !gathers; i++)
            TRY(kernels_copy(kernels, KERNELS_TRANSFERS, source, moves[i].from, target, moves[i].to,
                             run_bytes));
        at += moved;
    }
    return STATUS_OK;
}

/* Prints the rate of payload: each byte is read and written. */
static void time_runs(const struct buffer *source, struct buffer *target, uint64_t run_bytes,
                      uint32_t blocks)
{
    uint64_t best = UINT64_MAX, count = source->bytes / 2 / run_bytes;
    for (int round = 0; round < 4; round++) {
        kernels_event begin, end;
        must(kernels_record(kernels, KERNELS_TRANSFERS, &begin), "an event");
        must(queue_runs(source, target, count, run_bytes, blocks > 0), "runs");
        must(kernels_record(kernels, KERNELS_TRANSFERS, &end), "an event");
        must(kernels_wait(kernels, KERNELS_TRANSFERS, end), "runs");
        uint64_t us = kernels_event_us(kernels, KERNELS_TRANSFERS, begin, end);
        best = us && us < best ? us : best;
    }
    printf("{\"lane\": \"%s\", \"blocks\": %u, \"run_bytes\": %" PRIu64 ", \"gbs\": %.3f}\n",
           blocks ? "gather" : "memcpy", blocks, run_bytes,
           1e-3 * (double)(count * run_bytes) / (double)best);
    fflush(stdout);
}

/* Prints how long after a chunk its blocks are copied. Both are measured by events: the host sees
 * the chunk end, then it queues the copy beside the next chunk. A chunk here is four products of
 * its rows with gate_up. */
static void time_chunk(const struct buffer *source, struct buffer *target, uint32_t scale,
                       uint32_t blocks)
{
    enum { CHUNKS = 8, PASSES = 4 };
    uint32_t n = divide_up(layers[2].n, scale), k = divide_up(layers[2].k, scale);
    uint32_t rows = divide_up(CHUNK_ROWS, scale), chunk = 0;
    uint64_t us[CHUNKS], bytes = CHUNK_ROWS / 32 * BLOCK_BYTES, worst = 0, sum = 0;
    struct linear layer = make_layer(kernels_info(kernels).weight_type, n, k);
    struct buffer in = make_inputs(rows, k), out;
    must(kernels_alloc(kernels, (size_t)rows * n * sizeof(float), &out), "results");
    bytes = bytes < source->bytes / 2 ? bytes : source->bytes / 2;
    for (; chunk < CHUNKS; chunk++) {
        kernels_event computed, begin, end;
        for (int i = 0; i < PASSES; i++)
            must(kernels_linear(kernels, &layer, &in, rows, false, &out), "a chunk");
        must(kernels_record(kernels, KERNELS_STEPS, &computed), "an event");
        must(kernels_order(kernels, KERNELS_TRANSFERS, KERNELS_STEPS, computed), "an event");
        must(kernels_record(kernels, KERNELS_TRANSFERS, &begin), "an event");
        for (int i = 0; i < PASSES; i++)
            must(kernels_linear(kernels, &layer, &in, rows, false, &out), "the next chunk");
        must(kernels_wait(kernels, KERNELS_TRANSFERS, begin), "a chunk");
        must(queue_runs(source, target, bytes / RUN_BYTES, RUN_BYTES, true), "a chunk's blocks");
        must(kernels_record(kernels, KERNELS_TRANSFERS, &end), "an event");
        must(kernels_wait(kernels, KERNELS_TRANSFERS, end), "a chunk's blocks");
        us[chunk] = kernels_event_us(kernels, KERNELS_TRANSFERS, begin, end);
        must(kernels_sync(kernels), "the next chunk");
    }
    for (chunk = 1; chunk < CHUNKS; chunk++) { /* the first one loads kernels */
        sum += us[chunk];
        worst = us[chunk] > worst ? us[chunk] : worst;
    }
    printf("{\"chunk_rows\": %u, \"bytes\": %" PRIu64 ", \"blocks\": %u, \"ms\": %.3f, "
           "\"worst_ms\": %.3f}\n",
           rows, bytes, blocks, 1e-3 * (double)sum / (CHUNKS - 1), 1e-3 * (double)worst);
    fflush(stdout);
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    kernels_linear_destroy(kernels, &layer);
}

/* Returns false if the device shares nothing. */
static bool time_lane(uint32_t scale, uint32_t blocks)
{
    size_t bytes = scale == 1 ? (size_t)2 << 30 : (size_t)8 << 20;
    uint64_t largest = scale == 1 ? BLOCK_BYTES : RUN_BYTES;
    struct kv_move one = {0, 0, RUN_BYTES};
    struct buffer source, target;
    must(kernels_alloc(kernels, bytes, &source), "memory for gathers");
    must(kernels_alloc(kernels, bytes, &target), "memory for gathers");
    enum status status = kernels_gather(kernels, &source, &target, &one, 1);
    bool shares = status != STATUS_UNSUPPORTED;
    if (shares)
        must(status, "a gather");
    for (uint64_t run = RUN_BYTES; shares && run <= largest; run *= 4)
        time_runs(&source, &target, run, blocks);
    if (shares && blocks == LANE_BLOCKS) {
        time_runs(&source, &target, RUN_BYTES, 0);
        time_chunk(&source, &target, scale, blocks);
    }
    kernels_free(kernels, &source);
    kernels_free(kernels, &target);
    return shares;
}

/* plans: the name of a type, to time its plans; NULL: the layers of each type are timed. */
static void time_types(const uint32_t *sizes, uint32_t size_count, uint32_t scale,
                       const char *plans)
{
    for (int type = 0; weight_type_names[type]; type++) {
        struct linear probe;
        struct error err;
        if (plans && strcmp(plans, weight_type_names[type]) != 0)
            continue;
        if (kernels_check_model(kernels, (enum weight_type)type, 64, &err) != STATUS_OK)
            continue;
        if (kernels_linear_create(kernels, (enum weight_type)type, 64, 128, &probe) != STATUS_OK)
            continue;
        kernels_linear_destroy(kernels, &probe);
        time_type((enum weight_type)type, sizes, size_count, scale, plans != NULL);
    }
}

static void open_device(uint32_t gather_blocks)
{
    struct error err = {""};
    struct kernels_config config = {
        .device = test_device(), .threads = 1, .may_spin = true, .gather_blocks = gather_blocks};
    if (kernels_open(&config, &kernels, &err) == STATUS_OK)
        return;
    fprintf(stderr, "device_speed: %s\n", err.text);
    exit(1);
}

static uint32_t numbers_of(char *text, uint32_t numbers[MOST_SIZES])
{
    uint32_t count = 0;
    for (char *one = strtok(text, ","); one && count < MOST_SIZES; one = strtok(NULL, ","))
        numbers[count++] = (uint32_t)atoi(one);
    return count;
}

int main(int argc, char **argv)
{
    uint32_t sizes[MOST_SIZES] = {1, 16, 64, 512, 2048, 8192}, size_count = 6, scale = 1;
    uint32_t blocks[MOST_SIZES], block_count = 0;
    const char *plans = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--scale"))
            scale = (uint32_t)atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--rows"))
            size_count = numbers_of(argv[i + 1], sizes);
        if (!strcmp(argv[i], "--plans") && test_device() == DEVICE_CUDA)
            plans = argv[i + 1];
        if (!strcmp(argv[i], "--lane"))
            block_count = numbers_of(argv[i + 1], blocks);
    }
    must(scale ? STATUS_OK : STATUS_INVALID, "--scale 0");
    open_device(0);
    time_copy(scale == 1 ? (size_t)2 << 30 : (size_t)1 << 20);
    if (!block_count)
        time_types(sizes, size_count, scale, plans);
    kernels_close(kernels);
    for (uint32_t i = 0; i < block_count; i++) {
        open_device(blocks[i]);
        bool shares = time_lane(scale, blocks[i]);
        kernels_close(kernels);
        if (!shares)
            break;
    }
    return 0;
}
