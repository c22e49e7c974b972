/* kernels/deferred: it gives the bytes of the backend that it wraps, and what is wrong on a device
 * goes wrong with it: touching device memory, reading or changing host memory too early, and two
 * streams without an order. */
#include "common/base/failpoint.h"
#include "tests/kernels/attention_fixture.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct kernels *open_on(const struct variant *variant, enum device device)
{
    struct kernels_config config = {
        .device = device, .f32 = variant->f32, .isa = variant->isa, .threads = 2};
    struct kernels *kernels = NULL;
    struct error err = {0};
    if (kernels_open(&config, &kernels, &err) != STATUS_OK)
        fail_msg("%s on %s: %s", variant->name, device_names[device], err.text);
    return kernels;
}

static struct kernels *open_reference(enum device device)
{
    return open_on(&(struct variant){.name = "f32", .f32 = true}, device);
}

/* --- the same bytes --- */

enum { T = 5, D = 128, V = 40, F = 96, H = 4, G = 2, E = 32, WIDTH = (H + 2 * G) * E };
#define RESULTS_BYTES (1 << 16)

/* All outputs of one pass, one behind the other. */
struct results {
    char bytes[RESULTS_BYTES];
    size_t used;
};

static void keep(struct kernels *kernels, const struct buffer *buffer, struct results *results)
{
    assert_true(buffer->bytes <= RESULTS_BYTES - results->used);
    assert_int_equal(
        kernels_download(kernels, buffer, 0, results->bytes + results->used, buffer->bytes),
        STATUS_OK);
    results->used += buffer->bytes;
}

static struct buffer random_buffer(struct kernels *kernels, struct rng *rng, size_t count)
{
    float *values = fixture_floats(rng, count, 1);
    struct buffer buffer = fixture_buffer(kernels, values, count * sizeof *values);
    free(values);
    return buffer;
}

static struct linear make_linear(struct kernels *kernels, struct rng *rng, enum weight_type type,
                                 uint32_t n, uint32_t k)
{
    struct linear linear = {0};
    if (!weight_type_is_quantized(type)) {
        uint16_t *weights = fixture_bf16(rng, (size_t)n * k, 1);
        linear = fixture_linear(kernels, weights, n, k);
        free(weights);
        return linear;
    }
    float *rows = fixture_floats(rng, (size_t)n * k, 1);
    uint8_t *numbers = malloc(n * weight_row_bytes(type, k));
    float *scales = malloc(n * weight_row_scales(type, k) * sizeof *scales);
    uint32_t bad;
    assert_true(numbers && scales);
    assert_int_equal(weight_quantize(type, rows, n, k, numbers, scales, &bad), STATUS_OK);
    assert_int_equal(kernels_linear_create(kernels, type, n, k, &linear), STATUS_OK);
    assert_int_equal(kernels_linear_load(kernels, &linear, 0, n, numbers, scales), STATUS_OK);
    assert_int_equal(kernels_sync(kernels), STATUS_OK);
    free(rows);
    free(numbers);
    free(scales);
    return linear;
}

struct pass {
    struct step_batch batch;
    struct buffer x, normed, qkv, heads, gate_up, gated, weight, last, bias, rope, pool;
    struct linear embedding, in, int8, int4;
    struct kv_layout layout;
};

static struct pass make_pass(struct kernels *k, struct rng *rng)
{
    static const uint32_t tokens[T] = {3, 39, 0, 17, 8}, positions[T] = {0, 1, 2, 7, 8},
                          row_sequence[T] = {0, 0, 0, 1, 1}, sequence_rows[] = {0, 3, 5},
                          tables[] = {2, 0, 3, 1}, last[] = {2, 4};
    struct pass p = {
        .batch = {.rows = T,
                  .sequences = 2,
                  .tokens = fixture_buffer(k, tokens, sizeof tokens),
                  .positions = fixture_buffer(k, positions, sizeof positions),
                  .row_sequence = fixture_buffer(k, row_sequence, sizeof row_sequence),
                  .sequence_rows = fixture_buffer(k, sequence_rows, sizeof sequence_rows),
                  .block_tables = fixture_buffer(k, tables, sizeof tables),
                  .table_stride = 2},
        .x = fixture_buffer(k, NULL, T * D * sizeof(float)),
        .normed = fixture_buffer(k, NULL, T * D * sizeof(float)),
        .qkv = fixture_buffer(k, NULL, T * WIDTH * sizeof(float)),
        .heads = fixture_buffer(k, NULL, T * H * E * sizeof(float)),
        .gate_up = random_buffer(k, rng, T * 2 * F),
        .gated = fixture_buffer(k, NULL, T * F * sizeof(float)),
        .weight = random_buffer(k, rng, D),
        .last = fixture_buffer(k, last, sizeof last),
        .bias = random_buffer(k, rng, WIDTH),
        .rope = random_buffer(k, rng, 9 * E),
        .embedding = make_linear(k, rng, kernels_info(k).weight_type, V, D),
        .in = make_linear(k, rng, kernels_info(k).weight_type, WIDTH, D),
        .int8 = make_linear(k, rng, WEIGHT_INT8, D, F),
        .int4 = make_linear(k, rng, WEIGHT_INT4, D, D),
        .layout = {.layers = 1,
                   .kv_heads = G,
                   .head_dim = E,
                   .block_tokens = 8,
                   .type = kernels_info(k).kv_type,
                   .layer_end = 1,
                   .head_end = G}};
    float *pool = calloc(4, kv_layout_block_bytes(&p.layout));
    p.pool = fixture_buffer(k, pool, 4 * kv_layout_block_bytes(&p.layout));
    free(pool);
    return p;
}

static void free_pass(struct kernels *k, struct pass *p)
{
    struct buffer *all[] = {&p->batch.tokens,
                            &p->batch.positions,
                            &p->batch.row_sequence,
                            &p->batch.sequence_rows,
                            &p->batch.block_tables,
                            &p->x,
                            &p->normed,
                            &p->qkv,
                            &p->heads,
                            &p->gate_up,
                            &p->gated,
                            &p->weight,
                            &p->last,
                            &p->bias,
                            &p->rope,
                            &p->pool};
    struct linear *layers[] = {&p->embedding, &p->in, &p->int8, &p->int4};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        kernels_free(k, all[i]);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        kernels_linear_destroy(k, layers[i]);
}

/* Every operation, each on the outputs of those before it, and nothing waits between them. */
static void run_pass(struct kernels *k, struct results *results)
{
    struct rng rng = rng_seeded(7);
    struct pass p = make_pass(k, &rng);
    struct attention_shape shape = {.heads = H, .kv_heads = G, .head_dim = E, .scale = 0.2f};
    struct head_parameters parameters = {
        .bias = p.bias, .q_norm = p.weight, .k_norm = p.weight, .norm_eps = 1e-5, .rope = p.rope};
    enum status all[] = {
        kernels_embed(k, &p.batch, &p.embedding, &p.x),
        kernels_rmsnorm(k, &p.x, &p.weight, 1e-5, NULL, T, D, &p.normed),
        kernels_linear(k, &p.in, &p.normed, T, false, &p.qkv),
        kernels_rope_append(k, &p.batch, &shape, &parameters, &p.layout, 0, &p.qkv, &p.pool),
        kernels_attention(k, &p.batch, &shape, &p.layout, 0, &p.qkv, &p.pool, &p.heads),
        kernels_linear(k, &p.int4, &p.heads, T, true, &p.x),
        kernels_swiglu(k, &p.gate_up, T, F, &p.gated),
        kernels_linear(k, &p.int8, &p.gated, T, true, &p.x),
        kernels_copy(k, KERNELS_STEPS, &p.x, 0, &p.x, 3 * D * sizeof(float), D * sizeof(float)),
        kernels_rmsnorm(k, &p.x, &p.weight, 1e-5, &p.last, 2, D, &p.normed),
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] != STATUS_OK)
            fail_msg("operation %zu: %s", i, status_name(all[i]));
    const struct buffer *outputs[] = {&p.x, &p.normed, &p.qkv, &p.heads, &p.gated, &p.pool};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        keep(k, outputs[i], results);
    size_t run = kv_layout_head_run_bytes(&p.layout), bytes = kv_layout_block_bytes(&p.layout);
    const struct kv_sum_job sums = {0, bytes, run, (uint32_t[]){2, 1}, 2};
    kernels_event summed;
    assert_int_equal(kernels_block_sums(k, &p.pool, &sums, &p.heads), STATUS_OK);
    assert_int_equal(kernels_record(k, KERNELS_TRANSFERS, &summed), STATUS_OK);
    assert_int_equal(kernels_wait(k, KERNELS_TRANSFERS, summed), STATUS_OK);
    keep(k, &p.heads, results);
    free_pass(k, &p);
}

static void test_every_operation_gives_the_bytes_of_the_wrapped_backend(void **state)
{
    (void)state;
    size_t count;
    const struct variant *variants = fixture_variants(&count);
    struct results *expected = malloc(sizeof *expected), *got = malloc(sizeof *got);
    assert_true(expected && got);
    for (size_t v = 0; v < count; v++)
        for (enum device device = DEVICE_CPU; device <= DEVICE_DEFERRED_LATE; device++) {
            struct kernels *kernels = open_on(&variants[v], device);
            struct results *results = device == DEVICE_CPU ? expected : got;
            results->used = 0;
            run_pass(kernels, results);
            kernels_close(kernels);
            if (device == DEVICE_CPU)
                continue;
            assert_int_equal(got->used, expected->used);
            if (memcmp(got->bytes, expected->bytes, got->used) != 0)
                fail_msg("%s: other bytes on %s", variants[v].name, device_names[device]);
        }
    free(expected);
    free(got);
}

static void test_it_is_described_as_the_backend_that_it_wraps(void **state)
{
    (void)state;
    struct kernels *cpu = open_reference(DEVICE_AUTO), *deferred = open_reference(DEVICE_DEFERRED);
    struct kernels_info a = kernels_info(cpu), b = kernels_info(deferred);
    assert_string_equal(a.name, b.name);
    assert_string_equal(a.quantized_name, b.quantized_name);
    assert_string_equal(a.packing, b.packing);
    assert_string_equal(a.isa, b.isa);
    assert_int_equal(a.pass_rows, b.pass_rows);
    assert_int_equal(a.threads, b.threads);
    assert_true(a.device_is_host && !a.runs_ahead);
    assert_true(!b.device_is_host && b.runs_ahead);
    assert_int_equal(a.device, DEVICE_CPU);
    assert_int_equal(b.device, DEVICE_DEFERRED);
    kernels_close(cpu);
    kernels_close(deferred);
}

/* --- memory --- */

static void test_the_host_cannot_touch_device_memory(void **state)
{
    (void)state;
    struct kernels *kernels = open_reference(DEVICE_DEFERRED);
    struct buffer buffer;
    assert_int_equal(kernels_alloc(kernels, 100, &buffer), STATUS_OK);
    for (int writes = 0; writes <= 1; writes++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL);
            volatile char *touched = buffer.address;
            char seen = touched[99];
            if (writes)
                touched[99] = seen;
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    kernels_free(kernels, &buffer);
    kernels_close(kernels);
}

static void test_memory_is_bounded_and_the_hosts_own_can_be_adopted(void **state)
{
    (void)state;
    struct kernels *kernels = open_reference(DEVICE_DEFERRED);
    struct buffer none = {0}, inside, adopted, other;
    assert_int_equal(kernels_alloc(kernels, SIZE_MAX - 1, &none), STATUS_LIMIT);
    assert_null(none.address);
    char mine[64] = "pool", copy[4] = "";
    const void *seen = NULL;
    for (int i = 0; i < 2; i++) /* twice: the same range */
        assert_int_equal(kernels_adopt(kernels, mine, sizeof mine, &adopted), STATUS_OK);
    assert_ptr_equal(adopted.address, mine);
    assert_int_equal(kernels_view(kernels, &adopted, 1, 4, copy, &seen), STATUS_OK);
    assert_ptr_equal(seen, copy); /* a view of a device is a copy */
    assert_string_equal(copy, "ool");
    struct buffer many[200];
    for (int i = 0; i < 200; i++)
        assert_int_equal(kernels_alloc(kernels, 5000, &many[i]), STATUS_OK);
    for (int i = 0; i < 200; i += 2) /* ranges go in another order */
        kernels_free(kernels, &many[i]);
    for (int i = 199; i > 100; i -= 2)
        kernels_free(kernels, &many[i]);
    for (int i = 1; i < 100; i += 2)
        kernels_free(kernels, &many[i]);
    assert_int_equal(kernels_alloc(kernels, 5000, &other), STATUS_OK);
    inside = (struct buffer){(char *)other.address + 4096, 904};
    assert_int_equal(kernels_copy(kernels, KERNELS_STEPS, &adopted, 0, &inside, 899, 5), STATUS_OK);
    assert_int_equal(kernels_copy(kernels, KERNELS_MOVES, &inside, 900, &adopted, 0, 5),
                     STATUS_INVALID);
    assert_int_equal(kernels_download(kernels, &other, 4995, copy, 4), STATUS_OK);
    assert_memory_equal(copy, "pool", 4);
    kernels_free(kernels, &other);
    kernels_close(kernels);
}

static void write_square(void *context, uint32_t thread, uint32_t first, uint32_t last)
{
    (void)thread;
    for (uint32_t i = first; i < last; i++)
        ((uint32_t *)context)[i] = i * i;
}

static void test_host_work_and_measurements_are_done_at_return(void **state)
{
    (void)state;
    struct kernels *kernels = open_reference(DEVICE_DEFERRED_LATE);
    uint32_t squares[100] = {0};
    kernels_host_work(kernels, 100, 7, write_square, squares);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(squares[i], i * i);
    const char *instruction = "";
    assert_true(kernels_measure_peak(kernels, WEIGHT_F32, &instruction) > 0);
    assert_true(strlen(instruction) > 0);
    struct buffer memory;
    assert_int_equal(kernels_alloc(kernels, 1 << 20, &memory), STATUS_OK);
    assert_true(kernels_measure_read(kernels, &memory) > 0);
    kernels_free(kernels, &memory);
    kernels_close(kernels);
}

/* --- time --- */

/* An upload reads host memory when it runs; a read-back is there once its event has passed. */
static void test_transfers_touch_host_memory_late(void **state)
{
    (void)state;
    struct kernels *kernels = open_reference(DEVICE_DEFERRED_LATE);
    struct buffer buffer;
    char *host, back[4];
    kernels_event event;
    assert_int_equal(kernels_alloc(kernels, 4, &buffer), STATUS_OK);
    assert_int_equal(kernels_host_alloc(kernels, 4, (void **)&host), STATUS_OK);
    assert_memory_equal(host, "\0\0\0\0", 4);
    memcpy(host, "good", 4);
    assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &buffer, 0, host, 4), STATUS_OK);
    memcpy(host, "evil", 4); /* too early */
    assert_int_equal(kernels_read_back(kernels, KERNELS_STEPS, &buffer, 0, back, 4), STATUS_OK);
    assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &event), STATUS_OK);
    assert_memory_equal(back, "\xa5\xa5\xa5\xa5", 4); /* too early */
    assert_int_equal(kernels_wait(kernels, KERNELS_STEPS, event), STATUS_OK);
    assert_memory_equal(back, "evil", 4);
    memcpy(host, "more", 4); /* the event has passed */
    assert_int_equal(kernels_download(kernels, &buffer, 0, back, 4), STATUS_OK);
    assert_memory_equal(back, "evil", 4);
    kernels_host_free(kernels, host);
    kernels_host_free(kernels, NULL);
    kernels_free(kernels, &buffer);
    kernels_close(kernels);
}

/* A move reads what the steps write: behind their event it sees their bytes, otherwise not. */
static void test_only_an_order_holds_two_streams_together(void **state)
{
    (void)state;
    for (int ordered = 0; ordered <= 1; ordered++) {
        struct kernels *kernels = open_reference(DEVICE_DEFERRED_LATE);
        struct buffer buffer;
        char back[4];
        kernels_event written, moved;
        assert_int_equal(kernels_alloc(kernels, 4, &buffer), STATUS_OK);
        assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &buffer, 0, "step", 4), STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &written), STATUS_OK);
        if (ordered)
            assert_int_equal(kernels_order(kernels, KERNELS_MOVES, KERNELS_STEPS, written),
                             STATUS_OK);
        assert_int_equal(kernels_read_back(kernels, KERNELS_MOVES, &buffer, 0, back, 4), STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_MOVES, &moved), STATUS_OK);
        assert_int_equal(kernels_wait(kernels, KERNELS_MOVES, moved), STATUS_OK);
        assert_memory_equal(back, ordered ? "step" : "\0\0\0\0", 4);
        assert_int_equal(kernels_sync(kernels), STATUS_OK);
        kernels_free(kernels, &buffer);
        kernels_close(kernels);
    }
}

/* The other way round: every second event of the moves is done before the steps that wait. */
static void test_moves_may_be_earlier_than_steps(void **state)
{
    (void)state;
    for (int ordered = 0; ordered <= 1; ordered++) {
        struct kernels *kernels = open_reference(DEVICE_DEFERRED_LATE);
        struct buffer buffer;
        char back[4] = "";
        kernels_event written, moved;
        assert_int_equal(kernels_alloc(kernels, 4, &buffer), STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_MOVES, &moved), STATUS_OK);
        assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &buffer, 0, "step", 4), STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &written), STATUS_OK);
        if (ordered)
            assert_int_equal(kernels_order(kernels, KERNELS_MOVES, KERNELS_STEPS, written),
                             STATUS_OK);
        assert_int_equal(kernels_read_back(kernels, KERNELS_MOVES, &buffer, 0, back, 4), STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_MOVES, &moved), STATUS_OK);
        assert_memory_equal(back, ordered ? "step" : "\0\0\0\0", 4);
        assert_int_equal(kernels_sync(kernels), STATUS_OK);
        kernels_free(kernels, &buffer);
        kernels_close(kernels);
    }
}

static void test_events_count_up_on_each_stream(void **state)
{
    (void)state;
    for (enum device device = DEVICE_CPU; device <= DEVICE_DEFERRED_LATE; device++) {
        struct kernels *kernels = open_reference(device);
        kernels_event first, second, move;
        assert_true(kernels_passed(kernels, KERNELS_STEPS, 0));
        assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &first), STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_MOVES, &move), STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &second), STATUS_OK);
        assert_true(first == 1 && move == 1 && second == 2);
        bool at_once = kernels_passed(kernels, KERNELS_STEPS, second);
        assert_true(device != DEVICE_CPU || at_once);
        while (!kernels_passed(kernels, KERNELS_STEPS, second)) /* asking lets a late stream run */
            sched_yield();
        for (uint64_t i = 0; i < KERNELS_TIMED_EVENTS - 2; i++)
            assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &second), STATUS_OK);
        assert_int_equal(kernels_wait(kernels, KERNELS_STEPS, second), STATUS_OK);
        assert_int_equal(kernels_event_us(kernels, KERNELS_STEPS, second, second), 0);
        assert_true(kernels_event_us(kernels, KERNELS_STEPS, first, second) < 60000000);
        kernels_close(kernels);
    }
}

/* More than a queue holds, queued by one thread and waited for once. */
static void test_a_full_queue_lets_its_caller_wait(void **state)
{
    (void)state;
    enum { NUMBERS = 5000 };
    for (enum device device = DEVICE_DEFERRED; device <= DEVICE_DEFERRED_LATE; device++) {
        struct kernels *kernels = open_reference(device);
        uint32_t numbers[NUMBERS], back[NUMBERS];
        struct buffer buffer;
        assert_int_equal(kernels_alloc(kernels, sizeof numbers, &buffer), STATUS_OK);
        for (uint32_t i = 0; i < NUMBERS; i++) {
            numbers[i] = i;
            assert_int_equal(kernels_upload(kernels, KERNELS_MOVES, &buffer, i * sizeof *numbers,
                                            &numbers[i], sizeof *numbers),
                             STATUS_OK);
        }
        kernels_event event;
        assert_int_equal(kernels_record(kernels, KERNELS_MOVES, &event), STATUS_OK);
        assert_int_equal(kernels_order(kernels, KERNELS_STEPS, KERNELS_MOVES, event), STATUS_OK);
        assert_int_equal(kernels_download(kernels, &buffer, 0, back, sizeof back), STATUS_OK);
        assert_memory_equal(back, numbers, sizeof back);
        kernels_free(kernels, &buffer);
        kernels_close(kernels);
    }
}

static void test_calls_are_counted(void **state)
{
    (void)state;
    for (enum device device = DEVICE_CPU; device <= DEVICE_DEFERRED; device++) {
        struct kernels *kernels = open_reference(device);
        struct buffer buffer;
        char byte = 0;
        void *host;
        kernels_event event;
        const void *seen;
        assert_int_equal(kernels_alloc(kernels, 64, &buffer), STATUS_OK);
        assert_int_equal(kernels_host_alloc(kernels, 64, &host), STATUS_OK);
        assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &buffer, 0, &byte, 1), STATUS_OK);
        assert_int_equal(kernels_upload(kernels, KERNELS_STEPS, &buffer, 64, &byte, 1),
                         STATUS_INVALID); /* refused: not counted */
        assert_int_equal(kernels_swiglu(kernels, &buffer, 1, 1, &buffer), STATUS_OK);
        assert_int_equal(kernels_copy(kernels, KERNELS_MOVES, &buffer, 0, &buffer, 1, 1),
                         STATUS_OK);
        assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &event), STATUS_OK);
        assert_int_equal(kernels_wait(kernels, KERNELS_STEPS, event), STATUS_OK);
        assert_int_equal(kernels_download(kernels, &buffer, 0, &byte, 1), STATUS_OK);
        assert_int_equal(kernels_view(kernels, &buffer, 0, 1, &byte, &seen), STATUS_OK);
        struct kernels_counts counts = kernels_counts(kernels);
        assert_int_equal(counts.operations, 1);
        assert_int_equal(counts.uploads, 1);
        assert_int_equal(counts.copies, 1);
        assert_int_equal(counts.records, 1);
        assert_int_equal(counts.allocations, 2);
        assert_int_equal(counts.waits, 3);
        assert_int_equal(counts.read_backs, device == DEVICE_CPU ? 1 : 2);
        kernels_host_free(kernels, host);
        kernels_free(kernels, &buffer);
        kernels_close(kernels);
    }
}

/* --- failures --- */

static void test_a_failed_operation_fails_its_stream_until_a_sync(void **state)
{
    (void)state;
    struct error err;
    setenv("BATON_FAILPOINTS_ALLOW", "1", 1); /* this test is built for release, too */
    setenv("BATON_FAILPOINTS", "device.fails=fail@2", 1);
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
    struct kernels *kernels = open_reference(DEVICE_DEFERRED_LATE);
    static const float gate_up[2] = {1, 1};
    struct buffer in = fixture_buffer(kernels, gate_up, sizeof gate_up),
                  out = fixture_buffer(kernels, NULL, sizeof(float));
    assert_int_equal(kernels_sync(kernels), STATUS_OK);
    kernels_event good, bad, move;
    float result = 0;
    uint32_t squares[4] = {0};
    assert_int_equal(kernels_swiglu(kernels, &in, 1, 1, &out), STATUS_OK);
    assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &good), STATUS_OK);
    assert_int_equal(kernels_wait(kernels, KERNELS_STEPS, good), STATUS_OK);
    assert_int_equal(kernels_swiglu(kernels, &in, 1, 1, &out), STATUS_OK); /* fails, later */
    assert_int_equal(kernels_read_back(kernels, KERNELS_STEPS, &out, 0, &result, sizeof result),
                     STATUS_OK); /* is skipped */
    assert_int_equal(kernels_record(kernels, KERNELS_STEPS, &bad), STATUS_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(kernels_wait(kernels, KERNELS_STEPS, bad), STATUS_INTERNAL);
    assert_memory_equal(&result, "\xa5\xa5\xa5\xa5", sizeof result);
    kernels_host_work(kernels, 4, 1, write_square, squares); /* has no status: is done */
    assert_int_equal(squares[3], 9);
    assert_int_equal(kernels_record(kernels, KERNELS_MOVES, &move), STATUS_OK);
    assert_int_equal(kernels_wait(kernels, KERNELS_MOVES, move), STATUS_OK); /* the other stream */
    assert_int_equal(kernels_sync(kernels), STATUS_INTERNAL);
    assert_int_equal(kernels_sync(kernels), STATUS_OK);
    assert_int_equal(kernels_download(kernels, &out, 0, &result, sizeof result), STATUS_OK);
    assert_true(result > 0.7f && result < 0.8f); /* silu(1) of the first */
    kernels_free(kernels, &in);
    kernels_free(kernels, &out);
    kernels_close(kernels);
    unsetenv("BATON_FAILPOINTS");
    assert_int_equal(failpoint_init("test", &err), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_operation_gives_the_bytes_of_the_wrapped_backend),
        cmocka_unit_test(test_it_is_described_as_the_backend_that_it_wraps),
        cmocka_unit_test(test_the_host_cannot_touch_device_memory),
        cmocka_unit_test(test_memory_is_bounded_and_the_hosts_own_can_be_adopted),
        cmocka_unit_test(test_host_work_and_measurements_are_done_at_return),
        cmocka_unit_test(test_transfers_touch_host_memory_late),
        cmocka_unit_test(test_only_an_order_holds_two_streams_together),
        cmocka_unit_test(test_moves_may_be_earlier_than_steps),
        cmocka_unit_test(test_events_count_up_on_each_stream),
        cmocka_unit_test(test_a_full_queue_lets_its_caller_wait),
        cmocka_unit_test(test_calls_are_counted),
        cmocka_unit_test(test_a_failed_operation_fails_its_stream_until_a_sync),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
