/* Shared by the kernel tests: the backends to test, random data, buffers, and comparisons. A helper
 * that fails fails the test. */
#ifndef BATON_TESTS_KERNELS_FIXTURE_H
#define BATON_TESTS_KERNELS_FIXTURE_H

#include "common/base/rng.h"
#include "kernels/kernels.h"
#include "tests/kernels/naive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct variant {
    const char *name;
    bool f32;
    enum isa isa;
    /* a result's error against double arithmetic on the unrounded inputs, relative to its
     * norm */
    double tolerance;
};

/* Returns every backend that this CPU runs, or with BATON_TEST_DEVICE=cuda that one. (test_open.c
 * tests the others.) */
const struct variant *fixture_variants(size_t *count);

struct kernels *fixture_open(const struct variant *variant, uint32_t threads);

float *fixture_floats(struct rng *rng, size_t count,
                      float scale); /* uniform in (-scale, scale); free() */
uint16_t *fixture_bf16(struct rng *rng, size_t count, float scale); /* free() */

/* A buffer with a copy of `bytes` bytes (NULL: filled with NaN). */
struct buffer fixture_buffer(struct kernels *kernels, const void *source, size_t bytes);
/* The buffer's floats; free(). */
float *fixture_download(struct kernels *kernels, const struct buffer *buffer);

/* The numbers in the form that the backend takes; free(). */
void *fixture_weights(const struct kernels *kernels, const uint16_t *bf16, size_t count);
struct linear fixture_linear(struct kernels *kernels, const uint16_t *weights, uint32_t n,
                             uint32_t k);

/* |got - want|_2 <= tolerance * |want|_2 + tiny, and everything is finite. */
void fixture_assert_near(const float *got, const double *want, size_t count, double tolerance,
                         const char *what);
void fixture_assert_same_bits(const float *got, const float *want, size_t count, const char *what);

/* Asserts, on a CPU with AMX, that this thread has no tiles configured: they would be saved at
 * every switch. */
void fixture_assert_no_tiles(void);

#endif
