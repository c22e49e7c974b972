#include "common/cli/engine_bench_lists.h"

#include "common/base/str.h"

#include <string.h>

#define MAX_TOKENS 65536
#define MAX_BATCH  64

typedef bool item_reader(const char *text, uint64_t min, uint64_t max, uint64_t *value);

static bool read_weights(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
    (void)min;
    (void)max;
    for (*value = 0; weight_choice_names[*value]; (*value)++)
        if (!strcmp(text, weight_choice_names[*value]))
            return true;
    return false;
}

const char *const engine_bench_list_names[ENGINE_BENCH_LISTS] = {
    [ENGINE_BENCH_WEIGHTS] = "weights", [ENGINE_BENCH_THREADS] = "threads",
    [ENGINE_BENCH_PREFILL] = "prefill", [ENGINE_BENCH_BATCH] = "batch",
    [ENGINE_BENCH_DEPTH] = "depth",
};

static const struct list {
    item_reader *read;
    uint64_t min, max;
    bool may_be_zero; /* "0" alone stands for nothing */
} lists[] = {
    [ENGINE_BENCH_WEIGHTS] = {read_weights, 0, 0, false},
    [ENGINE_BENCH_THREADS] = {str_to_u64, 1, ENGINE_BENCH_MAX_THREADS, false},
    [ENGINE_BENCH_PREFILL] = {str_to_u64, 1, MAX_TOKENS, true},
    [ENGINE_BENCH_BATCH] = {str_to_u64, 1, MAX_BATCH, true},
    [ENGINE_BENCH_DEPTH] = {str_to_u64, 0, MAX_TOKENS, false},
};

static enum status bad_list(const struct list *list, const char *text, struct error *err)
{
    if (list->read == read_weights)
        return error_set(err, STATUS_INVALID,
                         "'%.80s' is not auto, bf16, int8 or int4, or up to %d of them between "
                         "commas",
                         text, ENGINE_BENCH_MAX_SIZES);
    return error_set(err, STATUS_INVALID,
                     "'%.80s' is not up to %d numbers in %llu .. %llu between commas%s", text,
                     ENGINE_BENCH_MAX_SIZES, (unsigned long long)list->min,
                     (unsigned long long)list->max, list->may_be_zero ? ", or 0 alone" : "");
}

enum status engine_bench_read_list(enum engine_bench_list which, const char *whole,
                                   struct bench_sizes *sizes, struct error *err)
{
    const struct list *list = &lists[which];
    char item[32];
    sizes->count = 0;
    if (list->may_be_zero && !strcmp(whole, "0"))
        return STATUS_OK;
    for (const char *text = whole;; text++) {
        size_t length = strcspn(text, ",");
        uint64_t value = 0;
        bool fits = length < sizeof item && sizes->count < ENGINE_BENCH_MAX_SIZES;
        memcpy(item, text, fits ? length : 0);
        item[fits ? length : 0] = '\0';
        if (!fits || !list->read(item, list->min, list->max, &value))
            return bad_list(list, whole, err);
        sizes->values[sizes->count++] = (uint32_t)value;
        text += length;
        if (!*text)
            return STATUS_OK;
    }
}

static enum status check(enum engine_bench_list list, const char *text, struct error *err)
{
    struct bench_sizes sizes;
    return engine_bench_read_list(list, text, &sizes, err);
}

enum status engine_bench_check_weights(const char *text, struct error *err)
{
    return check(ENGINE_BENCH_WEIGHTS, text, err);
}

enum status engine_bench_check_threads(const char *text, struct error *err)
{
    return check(ENGINE_BENCH_THREADS, text, err);
}

enum status engine_bench_check_prefill(const char *text, struct error *err)
{
    return check(ENGINE_BENCH_PREFILL, text, err);
}

enum status engine_bench_check_batch(const char *text, struct error *err)
{
    return check(ENGINE_BENCH_BATCH, text, err);
}

enum status engine_bench_check_depth(const char *text, struct error *err)
{
    return check(ENGINE_BENCH_DEPTH, text, err);
}
