#include "common/worker/request_times.h"

#include <stdlib.h>

struct request_time {
    bool used, untold;
    struct sequence_key key;
    uint64_t begun_us;
    uint32_t queued_us, read_us, cached_tokens;
    uint32_t chunk_count, chunk_end_us[REQUEST_TIMES_MAX_CHUNKS];
};

static struct request_time *find(const struct request_times *times, struct sequence_key key)
{
    for (uint32_t i = 0; i < times->capacity; i++) {
        struct request_time *item = &times->items[i];
        if (item->used && item->key.request == key.request && item->key.attempt == key.attempt)
            return item;
    }
    return NULL;
}

static uint32_t since(const struct request_time *item, uint64_t now_us)
{
    uint64_t passed_us = now_us > item->begun_us ? now_us - item->begun_us : 0;
    return passed_us < UINT32_MAX ? (uint32_t)passed_us : UINT32_MAX;
}

enum status request_times_init(struct request_times *times, uint32_t capacity)
{
    *times = (struct request_times){.items = calloc(capacity, sizeof *times->items)};
    if (!times->items)
        return STATUS_LIMIT;
    times->capacity = capacity;
    return STATUS_OK;
}

void request_times_deinit(struct request_times *times)
{
    free(times->items);
    *times = (struct request_times){0};
}

void request_times_begin(struct request_times *times, struct sequence_key key, bool computes,
                         uint64_t now_us)
{
    request_times_drop(times, key);
    for (uint32_t i = 0; i < times->capacity; i++) {
        if (times->items[i].used)
            continue;
        times->items[i] =
            (struct request_time){.used = true, .untold = computes, .key = key, .begun_us = now_us};
        times->untold += computes;
        return;
    }
}

void request_times_reserved(struct request_times *times, struct sequence_key key,
                            uint32_t cached_tokens, uint64_t now_us)
{
    struct request_time *item = find(times, key);
    if (!item)
        return;
    item->queued_us = since(item, now_us);
    item->cached_tokens = cached_tokens;
}

void request_times_chunk(struct request_times *times, struct sequence_key key, uint64_t now_us)
{
    struct request_time *item = find(times, key);
    if (!item)
        return;
    uint32_t last = REQUEST_TIMES_MAX_CHUNKS - 1;
    item->chunk_end_us[item->chunk_count < last ? item->chunk_count : last] = since(item, now_us);
    item->chunk_count++;
}

void request_times_read(struct request_times *times, struct sequence_key key, uint64_t now_us)
{
    struct request_time *item = find(times, key);
    if (item && !item->read_us)
        item->read_us = since(item, now_us);
}

void request_times_drop(struct request_times *times, struct sequence_key key)
{
    struct request_time *item = find(times, key);
    if (!item)
        return;
    times->untold -= item->untold;
    item->used = false;
}

bool request_times_prefilled(struct request_times *times, struct sequence_key key,
                             Baton__Worker__V1__Prefilled *prefilled)
{
    struct request_time *item = times->untold ? find(times, key) : NULL;
    if (!item || !item->untold)
        return false;
    item->untold = false;
    times->untold--;
    baton__worker__v1__prefilled__init(prefilled);
    prefilled->request = key.request;
    prefilled->attempt = key.attempt;
    prefilled->queued_us = item->queued_us;
    prefilled->cached_tokens = item->cached_tokens;
    prefilled->chunk_count = item->chunk_count;
    prefilled->n_chunk_end_us =
        item->chunk_count < REQUEST_TIMES_MAX_CHUNKS ? item->chunk_count : REQUEST_TIMES_MAX_CHUNKS;
    prefilled->chunk_end_us = item->chunk_end_us;
    return true;
}

void request_times_pulled(const struct request_times *times, struct sequence_key key,
                          uint64_t now_us, Baton__Worker__V1__Pulled *pulled)
{
    const struct request_time *item = find(times, key);
    if (!item)
        return;
    pulled->queued_us = item->queued_us;
    pulled->read_us = item->read_us;
    pulled->done_us = since(item, now_us);
}
