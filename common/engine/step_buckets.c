#include "common/engine/step_buckets.h"

#include <string.h>

#define FIRST_CONTEXT 2048 /* tokens */
#define NEXT_CONTEXT  4    /* times as many */
#define MOST_ROWS     65536

enum status step_bucket_sizes_parse(const char *text, struct step_bucket_sizes *sizes,
                                    struct error *err)
{
    struct step_bucket_sizes read = {.chosen = strcmp(text, "auto") != 0};
    const char *at = text;
    bool named = !read.chosen || !strcmp(text, "off"), sound = named;
    while (!named && read.count < STEP_BUCKETS_SIZES) {
        uint32_t number = 0;
        for (; *at >= '0' && *at <= '9' && number <= MOST_ROWS; at++)
            number = 10 * number + (uint32_t)(*at - '0');
        sound = number > (read.count ? read.rows[read.count - 1] : 0) && number <= MOST_ROWS &&
                (!*at || *at == ',');
        if (sound)
            read.rows[read.count++] = number;
        if (!sound || !*at)
            break;
        sound = false; /* a number has to follow */
        at++;
    }
    if (!sound)
        return error_set(err, STATUS_INVALID,
                         "'%s' is none of auto|off|ascending numbers of rows, at most %d (1,8,64)",
                         text, STEP_BUCKETS_SIZES);
    *sizes = read;
    return STATUS_OK;
}

/* Gives the numbers of rows up to most_rows: of auto in steps of 1, 2, 4, then 8, and from
 * 64 on of an eighth to a quarter. */
static uint32_t sizes_up_to(const struct step_bucket_sizes *sizes, uint32_t most_rows,
                            uint32_t rows[STEP_BUCKETS_SIZES])
{
    uint32_t count = 0;
    if (sizes->chosen) {
        while (count < sizes->count && sizes->rows[count] <= most_rows) {
            rows[count] = sizes->rows[count];
            count++;
        }
        return count;
    }
    for (uint32_t next = 1; next < most_rows && count + 1 < STEP_BUCKETS_SIZES;) {
        uint32_t step = 1;
        while (step < 8 ? step < next : 8 * step <= next)
            step *= 2;
        rows[count++] = next;
        next += step;
    }
    rows[count++] = most_rows;
    return count;
}

void step_buckets_make(const struct step_bucket_sizes *sizes, uint32_t most_rows,
                       uint32_t context_blocks, uint32_t block_tokens, struct step_buckets *buckets)
{
    uint32_t rows[STEP_BUCKETS_SIZES], count = sizes_up_to(sizes, most_rows, rows);
    *buckets = (struct step_buckets){0};
    uint32_t blocks = 0;
    for (uint64_t tokens = FIRST_CONTEXT; blocks < context_blocks; tokens *= NEXT_CONTEXT) {
        uint64_t covered = tokens / block_tokens;
        blocks = covered < context_blocks ? (uint32_t)covered : context_blocks;
        for (uint32_t i = count; i-- > 0 && buckets->count < KERNELS_MAX_PASSES;)
            buckets->all[buckets->count++] = (struct step_bucket){rows[i], blocks, false};
    }
}

uint64_t step_buckets_record_us(const struct step_buckets *buckets, uint32_t next)
{
    for (uint32_t i = next; i-- > 0;)
        if (buckets->all[i].rows == buckets->all[next].rows)
            return buckets->record_us[i];
    return next ? buckets->record_us[next - 1] : 0;
}

uint32_t step_buckets_choose(const struct step_buckets *buckets, uint32_t rows, uint32_t blocks)
{
    uint32_t best = STEP_BUCKETS_NONE;
    for (uint32_t i = 0; i < buckets->count; i++) {
        const struct step_bucket *one = &buckets->all[i];
        if (!one->ready || one->rows < rows || one->blocks < blocks)
            continue;
        const struct step_bucket *chosen = best == STEP_BUCKETS_NONE ? NULL : &buckets->all[best];
        if (!chosen || one->rows < chosen->rows ||
            (one->rows == chosen->rows && one->blocks < chosen->blocks))
            best = i;
    }
    return best;
}
