/* One sequence's queries, keys and values, and the ways to run them through a backend's paged
 * attention. */
#ifndef BATON_TESTS_KERNELS_ATTENTION_FIXTURE_H
#define BATON_TESTS_KERNELS_ATTENTION_FIXTURE_H

#include "tests/kernels/fixture.h"

struct attention_data {
    struct attention_case shape;
    float *qkv; /* [context][(H + 2G) E]; free with attention_data_free */
};

struct attention_data attention_data_make(const struct attention_case *shape, uint64_t seed);
void attention_data_free(struct attention_data *data);

/* A KV pool, full of NaN, with room for `sequences` sequences of the case's context. Blocks of a
 * sequence are scattered. */
struct attention_rig {
    struct kernels *kernels;
    struct attention_case shape;
    struct kv_layout layout;
    struct buffer pool, rope;
    uint32_t sequences, blocks_each;
    uint32_t *tables;
};

struct attention_rig attention_rig_make(struct kernels *kernels, const struct attention_case *shape,
                                        uint32_t sequences);
void attention_rig_free(struct attention_rig *rig);

/* Runs one step with rows [begin[s], end[s]) of data[s] for each sequence s (an empty range is
 * allowed). Writes row t of sequence s to out[s] + t * H E. */
void attention_rig_step(struct attention_rig *rig, const struct attention_data *data,
                        const uint32_t *begin, const uint32_t *end, float **out);

/* Runs one whole sequence in chunks of `chunk` rows. Returns [context][H E]; free(). */
float *attention_in_chunks(struct kernels *kernels, const struct attention_data *data,
                           uint32_t chunk);
/* The same in double precision, without rounding except to int8 if the case says so; free(). */
double *attention_in_double(const struct attention_data *data);

#endif
