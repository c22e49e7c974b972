/* Draws by every backend, against the definition in kernels.h, plainly computed: sorted, and added
 * one by one. And tokens that are fed from draws. */
#include "common/base/fixed_math.h"
#include "tests/kernels/fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* More than one block of sums, and no whole number of them. */
enum { VOCAB = 1111, ROWS = 96 };

struct weighed {
    float p;
    uint32_t id;
};

static int by_rank(const void *a, const void *b)
{
    const struct weighed *x = a, *y = b;
    if (x->p != y->p)
        return x->p > y->p ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int by_id(const void *a, const void *b)
{
    const struct weighed *x = a, *y = b;
    return x->id < y->id ? -1 : 1;
}

/* Sorts the masses above 0 by rank. Returns how many they are. */
static uint32_t weigh(const float *logits, float max, float temperature, struct weighed *weighed)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        float p = exp_negative((logits[i] - max) / temperature);
        if (p > 0)
            weighed[count++] = (struct weighed){p, i};
    }
    qsort(weighed, count, sizeof *weighed, by_rank);
    return count;
}

/* Returns how many of the ranked masses the filters keep. */
static uint32_t filter(const struct weighed *weighed, uint32_t count, bool cut_by_rank,
                       const struct kernels_draw *draw)
{
    double total = 0, prefix = 0;
    uint32_t kept = count;
    if (draw->top_k && draw->top_k < count)
        kept = draw->top_k;
    /* The sum of all is in the order of ids, that of the first top_k by rank. */
    struct weighed *summed = malloc(kept * sizeof *summed);
    assert_non_null(summed);
    memcpy(summed, weighed, kept * sizeof *summed);
    if (!cut_by_rank)
        qsort(summed, kept, sizeof *summed, by_id);
    for (uint32_t i = 0; i < kept; i++)
        total += (double)summed[i].p;
    free(summed);
    if (draw->top_p < 1) {
        uint32_t top = 0;
        while (top < kept && (top == 0 || prefix < (double)draw->top_p * total))
            prefix += (double)weighed[top++].p;
        kept = top;
    }
    while (kept > 1 && weighed[kept - 1].p < draw->min_p)
        kept--;
    return kept;
}

static struct kernels_drawn draw_plainly(const float *logits, const struct kernels_draw *draw)
{
    struct weighed weighed[VOCAB];
    float max = -INFINITY;
    uint32_t best = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        if (!(logits[i] < INFINITY))
            return (struct kernels_drawn){0, STATUS_INTERNAL};
        if (logits[i] > max) {
            max = logits[i];
            best = i;
        }
    }
    if (max == -INFINITY)
        return (struct kernels_drawn){0, STATUS_INVALID};
    if (draw->temperature == 0)
        return (struct kernels_drawn){best, STATUS_OK};
    uint32_t count = weigh(logits, max, draw->temperature, weighed);
    bool cut = draw->top_k && draw->top_k < count;
    uint32_t kept = filter(weighed, count, cut, draw), i = 0;
    qsort(weighed, kept, sizeof *weighed, by_id);
    double total = 0, passed = 0;
    for (i = 0; i < kept; i++)
        total += (double)weighed[i].p;
    double unit = rng_unit_at(draw->seed, draw->choice, draw->index);
    for (i = 0; i + 1 < kept; i++) {
        passed += (double)weighed[i].p;
        if (passed > unit * total)
            break;
    }
    return (struct kernels_drawn){weighed[i].id, STATUS_OK};
}

/* Makes a row of one of several kinds. In rows of ties, filters end between equal masses, and
 * top_p's aim is a sum of them: only the order of additions by the definition decides there. */
static void fill_row(struct rng *rng, uint32_t number, float *row, struct kernels_draw *draw)
{
    static const float temperatures[] = {1, 0, 0.3f, 2.5f}, top_ps[] = {1, 0.9f, 0.5f, 0.25f},
                       min_ps[] = {0, 0.05f, 0.5f};
    static const uint32_t top_ks[] = {0, 1, 7, 300, VOCAB + 5};
    uint32_t kind = number % 6;
    for (uint32_t i = 0; i < VOCAB; i++)
        row[i] = kind == 0   ? 0
                 : kind == 1 ? (float)(i % 3)
                 : kind == 2 ? -logf((float)(1 + rng_below(rng, 8)))
                             : (float)(rng_unit(rng) * 20 - 10);
    if (kind == 3)
        for (uint32_t i = 0; i < VOCAB; i++)
            row[i] = i % 64 == 9 ? row[i] : -INFINITY;
    *draw = (struct kernels_draw){.temperature = temperatures[rng_below(rng, 4)],
                                  .top_p = top_ps[rng_below(rng, 4)],
                                  .min_p = min_ps[rng_below(rng, 3)],
                                  .top_k = top_ks[rng_below(rng, 5)],
                                  .seed = rng_below(rng, 1000),
                                  .choice = (uint32_t)rng_below(rng, 3),
                                  .index = number};
    if (number % 24 == 4)
        row[rng_below(rng, VOCAB)] = number % 48 == 4 ? NAN : INFINITY;
    if (number % 24 == 5)
        for (uint32_t i = 0; i < VOCAB; i++)
            row[i] = -INFINITY;
}

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

static void check_draws(struct kernels *kernels, const float *logits,
                        const struct kernels_draw *draws, const struct kernels_drawn *want,
                        const char *name)
{
    struct kernels_drawn got[ROWS];
    struct buffer in = fixture_buffer(kernels, logits, sizeof(float) * ROWS * VOCAB);
    struct buffer by = fixture_buffer(kernels, draws, ROWS * sizeof *draws);
    struct buffer scratch = fixture_buffer(kernels, NULL, kernels_sample_bytes(kernels, VOCAB));
    struct buffer out = fixture_buffer(kernels, NULL, sizeof got);
    struct buffer small = {scratch.address, scratch.bytes - 1};
    struct kernels_counts before = kernels_counts(kernels);
    assert_int_equal(kernels_sample(kernels, &in, ROWS, VOCAB, &by, &scratch, &out), STATUS_OK);
    assert_int_equal(kernels_counts(kernels).allocations, before.allocations);
    assert_int_equal(kernels_download(kernels, &out, 0, got, sizeof got), STATUS_OK);
    for (uint32_t i = 0; i < ROWS; i++)
        if (got[i].token != want[i].token || got[i].status != want[i].status)
            fail_msg("%s: row %u: token %u, status %u, expected %u, %u", name, i, got[i].token,
                     got[i].status, want[i].token, want[i].status);
    const struct {
        uint32_t rows, vocab;
        struct buffer *scratch;
    } wrong[] = {{ROWS + 1, VOCAB, &scratch},
                 {ROWS, VOCAB + 1, &scratch},
                 {ROWS, 0, &scratch},
                 {ROWS, VOCAB, &small}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(kernels_sample(kernels, &in, wrong[i].rows, wrong[i].vocab, &by,
                                        wrong[i].scratch, &out),
                         STATUS_INVALID);
    struct buffer *buffers[] = {&in, &by, &scratch, &out};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        kernels_free(kernels, buffers[i]);
}

/* Tokens follow draws without a wait between them, as from one step to the next. */
static void check_feeding(struct kernels *kernels, const float *logits,
                          const struct kernels_draw *draws, const struct kernels_drawn *want)
{
    enum { FED = 4 };
    static const uint32_t from[FED] = {2, KERNELS_TOKEN_GIVEN, 0, 2}, given[FED] = {9, 1000, 9, 9};
    uint32_t got[FED];
    struct buffer in = fixture_buffer(kernels, logits, sizeof(float) * 3 * VOCAB);
    struct buffer by = fixture_buffer(kernels, draws, 3 * sizeof *draws);
    struct buffer scratch = fixture_buffer(kernels, NULL, kernels_sample_bytes(kernels, VOCAB));
    struct buffer drawn = fixture_buffer(kernels, NULL, 3 * sizeof *want);
    struct buffer places = fixture_buffer(kernels, from, sizeof from);
    struct buffer tokens = fixture_buffer(kernels, given, sizeof given);
    assert_int_equal(kernels_sample(kernels, &in, 3, VOCAB, &by, &scratch, &drawn), STATUS_OK);
    assert_int_equal(kernels_take_tokens(kernels, &places, FED, &drawn, &tokens), STATUS_OK);
    assert_int_equal(kernels_take_tokens(kernels, &places, FED + 1, &drawn, &tokens),
                     STATUS_INVALID);
    assert_int_equal(kernels_download(kernels, &tokens, 0, got, sizeof got), STATUS_OK);
    const uint32_t expected[FED] = {want[2].token, 1000, want[0].token, want[2].token};
    assert_memory_equal(got, expected, sizeof expected);
    struct buffer *buffers[] = {&in, &by, &scratch, &drawn, &places, &tokens};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        kernels_free(kernels, buffers[i]);
}

static void test_draws_are_those_of_the_definition_on_every_backend(void **state)
{
    (void)state;
    size_t count;
    const struct variant *variants = fixture_variants(&count);
    float *logits = malloc(sizeof *logits * ROWS * VOCAB);
    struct kernels_draw draws[ROWS];
    struct kernels_drawn want[ROWS];
    struct rng rng = rng_seeded(11);
    uint32_t failed = 0;
    assert_non_null(logits);
    for (uint32_t i = 0; i < ROWS; i++) {
        fill_row(&rng, i, logits + (size_t)i * VOCAB, &draws[i]);
        want[i] = draw_plainly(logits + (size_t)i * VOCAB, &draws[i]);
        failed += want[i].status != STATUS_OK;
    }
    assert_int_equal(failed, 8);
    for (size_t v = 0; v < count; v++)
        for (enum device device = DEVICE_CPU; device <= DEVICE_DEFERRED_LATE; device++) {
            struct kernels *kernels = open_on(&variants[v], device);
            check_draws(kernels, logits, draws, want, variants[v].name);
            check_feeding(kernels, logits, draws, want);
            kernels_close(kernels);
        }
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws_are_those_of_the_definition_on_every_backend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
