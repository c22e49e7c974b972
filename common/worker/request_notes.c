#include "common/worker/request_notes.h"

#include "common/base/log.h"
#include "common/base/request_id.h"

#include <inttypes.h>
#include <stdlib.h>

struct request_note {
    bool used, unsent;
    struct sequence_key key;
    char name[REQUEST_MAX_ID_BYTES + 1];
    uint64_t begun_us;
    uint32_t queued_us, read_us, cached_tokens;
    uint32_t chunk_count, chunk_end_us[REQUEST_NOTES_MAX_CHUNKS];
};

static struct request_note *find(const struct request_notes *notes, struct sequence_key key)
{
    for (uint32_t i = 0; i < notes->capacity; i++) {
        struct request_note *note = &notes->items[i];
        if (note->used && note->key.request == key.request && note->key.attempt == key.attempt)
            return note;
    }
    return NULL;
}

static uint32_t since(const struct request_note *note, uint64_t now_us)
{
    uint64_t passed_us = now_us > note->begun_us ? now_us - note->begun_us : 0;
    return passed_us < UINT32_MAX ? (uint32_t)passed_us : UINT32_MAX;
}

enum status request_notes_init(struct request_notes *notes, uint32_t capacity)
{
    *notes = (struct request_notes){.items = calloc(capacity, sizeof *notes->items)};
    if (!notes->items)
        return STATUS_LIMIT;
    notes->capacity = capacity;
    return STATUS_OK;
}

void request_notes_deinit(struct request_notes *notes)
{
    free(notes->items);
    *notes = (struct request_notes){0};
}

void request_notes_begin(struct request_notes *notes, struct sequence_key key, const char *name,
                         bool computes, uint64_t now_us)
{
    request_notes_drop(notes, key);
    for (uint32_t i = 0; i < notes->capacity; i++) {
        struct request_note *note = &notes->items[i];
        if (note->used)
            continue;
        *note =
            (struct request_note){.used = true, .unsent = computes, .key = key, .begun_us = now_us};
        log_word(name, note->name, sizeof note->name);
        notes->unsent += computes;
        return;
    }
}

void request_notes_drop(struct request_notes *notes, struct sequence_key key)
{
    struct request_note *note = find(notes, key);
    if (!note)
        return;
    notes->unsent -= note->unsent;
    note->used = false;
}

bool request_notes_has(const struct request_notes *notes, struct sequence_key key)
{
    return find(notes, key) != NULL;
}

const char *request_notes_name(const struct request_notes *notes, struct sequence_key key)
{
    const struct request_note *note = find(notes, key);
    return note && *note->name ? note->name : "unknown";
}

void request_notes_reserved(struct request_notes *notes, struct sequence_key key,
                            uint32_t cached_tokens, uint64_t now_us)
{
    struct request_note *note = find(notes, key);
    if (!note)
        return;
    note->queued_us = since(note, now_us);
    note->cached_tokens = cached_tokens;
}

void request_notes_chunk(struct request_notes *notes, struct sequence_key key, uint64_t now_us)
{
    struct request_note *note = find(notes, key);
    if (!note)
        return;
    uint32_t last = REQUEST_NOTES_MAX_CHUNKS - 1;
    note->chunk_end_us[note->chunk_count < last ? note->chunk_count : last] = since(note, now_us);
    note->chunk_count++;
}

void request_notes_read(struct request_notes *notes, struct sequence_key key, uint64_t now_us)
{
    struct request_note *note = find(notes, key);
    if (note && !note->read_us)
        note->read_us = since(note, now_us);
}

bool request_notes_prefilled(struct request_notes *notes, struct sequence_key key,
                             Baton__Worker__V1__Prefilled *prefilled)
{
    struct request_note *note = notes->unsent ? find(notes, key) : NULL;
    if (!note || !note->unsent)
        return false;
    note->unsent = false;
    notes->unsent--;
    return request_notes_times(notes, key, prefilled);
}

bool request_notes_times(const struct request_notes *notes, struct sequence_key key,
                         Baton__Worker__V1__Prefilled *prefilled)
{
    struct request_note *note = find(notes, key);
    if (!note)
        return false;
    baton__worker__v1__prefilled__init(prefilled);
    prefilled->request = key.request;
    prefilled->attempt = key.attempt;
    prefilled->queued_us = note->queued_us;
    prefilled->cached_tokens = note->cached_tokens;
    prefilled->chunk_count = note->chunk_count;
    prefilled->n_chunk_end_us =
        note->chunk_count < REQUEST_NOTES_MAX_CHUNKS ? note->chunk_count : REQUEST_NOTES_MAX_CHUNKS;
    prefilled->chunk_end_us = note->chunk_end_us;
    return true;
}

void request_notes_pulled(const struct request_notes *notes, struct sequence_key key,
                          uint64_t now_us, Baton__Worker__V1__Pulled *pulled)
{
    const struct request_note *note = find(notes, key);
    if (!note)
        return;
    pulled->queued_us = note->queued_us;
    pulled->read_us = note->read_us;
    pulled->done_us = since(note, now_us);
}

void request_notes_log_failed(const struct request_notes *notes, const char *module,
                              const struct step_event *event)
{
    static const char format[] = "req=%s id=%016" PRIx64 " attempt=%u status=%s why=%s msg=\"%s\"";
    char quoted[400];
    const char *name = request_notes_name(notes, event->key);
    log_quote(event->err.text, quoted, sizeof quoted);
    if (event->status == STATUS_TIMEOUT)
        log_debug(module, format, name, event->key.request, event->key.attempt,
                  status_name(event->status), quoted, "ended");
    else if (event->kind == STEP_FAILED)
        log_error_limited(module, format, name, event->key.request, event->key.attempt,
                          status_name(event->status), quoted, "a step failed");
    else
        log_warn_limited(module, format, name, event->key.request, event->key.attempt,
                         status_name(event->status), quoted, "refused");
}
