#include "common/worker/request_names.h"

#include "common/base/log.h"
#include "common/base/request_id.h"

#include <inttypes.h>
#include <stdlib.h>

struct request_name {
    struct sequence_key key;
    char text[REQUEST_MAX_ID_BYTES + 1]; /* "": an empty place */
};

static struct request_name *find(const struct request_names *names, struct sequence_key key)
{
    for (uint32_t i = 0; i < names->capacity; i++)
        if (*names->items[i].text && names->items[i].key.request == key.request &&
            names->items[i].key.attempt == key.attempt)
            return &names->items[i];
    return NULL;
}

enum status request_names_init(struct request_names *names, uint32_t capacity)
{
    *names = (struct request_names){.items = calloc(capacity, sizeof *names->items)};
    if (!names->items)
        return STATUS_LIMIT;
    names->capacity = capacity;
    return STATUS_OK;
}

void request_names_deinit(struct request_names *names)
{
    free(names->items);
    *names = (struct request_names){0};
}

void request_names_put(struct request_names *names, struct sequence_key key, const char *name)
{
    struct request_name *place = find(names, key);
    for (uint32_t i = 0; !place && i < names->capacity; i++)
        if (!*names->items[i].text)
            place = &names->items[i];
    if (!place)
        return;
    place->key = key;
    log_word(name, place->text, sizeof place->text);
}

bool request_names_has(const struct request_names *names, struct sequence_key key)
{
    return find(names, key) != NULL;
}

const char *request_names_get(const struct request_names *names, struct sequence_key key)
{
    const struct request_name *found = find(names, key);
    return found ? found->text : "unknown";
}

void request_names_drop(struct request_names *names, struct sequence_key key)
{
    struct request_name *found = find(names, key);
    if (found)
        *found->text = 0;
}

void request_names_log_failed(const struct request_names *names, const char *module,
                              const struct step_event *event)
{
    static const char format[] = "req=%s id=%016" PRIx64 " attempt=%u status=%s why=%s msg=\"%s\"";
    char quoted[400];
    const char *name = request_names_get(names, event->key);
    log_quote(event->err.text, quoted, sizeof quoted);
    if (event->kind == STEP_FAILED)
        log_error_limited(module, format, name, event->key.request, event->key.attempt,
                          status_name(event->status), quoted, "a step failed");
    else
        log_warn_limited(module, format, name, event->key.request, event->key.attempt,
                         status_name(event->status), quoted, "refused");
}
