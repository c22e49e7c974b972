#include "router/ops/access_keys.h"

#include "common/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PER_MINUTE 1000000000u
#define MAX_RUNNING    1000000u
#define SHOWN_BYTES    200 /* names that a sentence lists */

/* The words seen on a line. */
struct line {
    size_t number;
    bool has_id, has_digest, has_tenant, has_requests, has_tokens, has_running, has_priorities,
        has_classes;
};

struct word {
    const char *text;
    size_t length;
};

static bool is(struct word word, const char *text)
{
    return word.length == strlen(text) && !memcmp(word.text, text, word.length);
}

/* Takes off the front up to the first `c`, and `c` itself. Returns the front without `c`. */
static struct word split(struct word *rest, char c)
{
    const char *at = rest->length ? memchr(rest->text, c, rest->length) : NULL;
    struct word front = {rest->text, at ? (size_t)(at - rest->text) : rest->length};
    size_t taken = front.length + (at != NULL);
    *rest = (struct word){rest->text + taken, rest->length - taken};
    return front;
}

static bool take_name(struct word word, char name[API_KEY_NAME_BYTES])
{
    if (!api_key_name(word.text, word.length))
        return false;
    memcpy(name, word.text, word.length);
    name[word.length] = 0;
    return true;
}

static bool take_number(struct word word, uint64_t max, uint64_t *number)
{
    char text[16];
    if (!word.length || word.length >= sizeof text)
        return false;
    memcpy(text, word.text, word.length);
    text[word.length] = 0;
    return str_to_u64(text, 1, max, number);
}

/* Takes id, tenant or sha256. Returns the flag of the word; NULL: it is none of these. *clause:
 * what an invalid value must be; NULL: it is valid. */
static bool *take_identity(struct line *line, struct word name, struct word value,
                           struct access_key *key, const char **clause)
{
    static const char *const a_name = "must be 1 to 64 letters, digits, '-', '_' or '.'";
    if (is(name, "id")) {
        *clause = take_name(value, key->id) ? NULL : a_name;
        return &line->has_id;
    }
    if (is(name, "tenant")) {
        *clause = take_name(value, key->tenant) ? NULL : a_name;
        return &line->has_tenant;
    }
    if (!is(name, "sha256"))
        return NULL;
    *clause = digest_from_hex(value.text, value.length, &key->digest)
                  ? NULL
                  : "must be 64 hex digits: the hash, not the key";
    return &line->has_digest;
}

/* The same for requests, tokens, running, priorities or classes. */
static bool *take_limit(struct line *line, struct word name, struct word value,
                        struct access_key *key, const char **clause)
{
    static const char *const a_rate = "must be a number from 1 to 1000000000";
    struct quota_limits *limits = &key->limits;
    uint64_t number = 0;
    if (is(name, "requests")) {
        *clause = take_number(value, MAX_PER_MINUTE, &limits->requests_per_minute) ? NULL : a_rate;
        return &line->has_requests;
    }
    if (is(name, "tokens")) {
        *clause = take_number(value, MAX_PER_MINUTE, &limits->tokens_per_minute) ? NULL : a_rate;
        return &line->has_tokens;
    }
    if (is(name, "running")) {
        *clause =
            take_number(value, MAX_RUNNING, &number) ? NULL : "must be a number from 1 to 1000000";
        limits->running = (uint32_t)number;
        return &line->has_running;
    }
    if (is(name, "classes")) {
        bool good = api_key_classes(value.text, value.length);
        *clause = good
                      ? NULL
                      : "must be names of SLO classes, with commas, each once, of 1 to 32 letters, "
                        "digits, '-', '_' or '.'; 511 bytes at most";
        if (good)
            snprintf(key->classes, sizeof key->classes, "%.*s", (int)value.length, value.text);
        return &line->has_classes;
    }
    if (!is(name, "priorities"))
        return NULL;
    *clause = api_key_priorities(value.text, value.length, key->priorities)
                  ? NULL
                  : "must be some of normal, high, offline, with commas, each once";
    return &line->has_priorities;
}

static enum status take_word(struct line *line, struct word value, size_t place,
                             struct access_key *key, struct error *err)
{
    if (!memchr(value.text, '=', value.length))
        return error_set(err, STATUS_INVALID, "line %zu: word %zu is not NAME=VALUE", line->number,
                         place);
    const char *clause = NULL; /* "must be ...", for an invalid value */
    struct word name = split(&value, '=');
    bool *seen = take_identity(line, name, value, key, &clause);
    if (!seen)
        seen = take_limit(line, name, value, key, &clause);
    if (!seen)
        return error_set(err, STATUS_INVALID,
                         "line %zu: word %zu is none of id=, sha256=, tenant=, requests=, tokens=, "
                         "running=, priorities=, classes=",
                         line->number, place);
    if (*seen)
        return error_set(err, STATUS_INVALID, "line %zu: %.*s= stands there twice", line->number,
                         (int)name.length, name.text);
    if (clause)
        return error_set(err, STATUS_INVALID, "line %zu: %.*s= %s", line->number, (int)name.length,
                         name.text, clause);
    *seen = true;
    return STATUS_OK;
}

static enum status parse_line(struct word rest, struct line *line, struct access_key *key,
                              struct error *err)
{
    *key = (struct access_key){.priorities = {[PRIORITY_NORMAL] = true, [PRIORITY_OFFLINE] = true}};
    for (size_t place = 1; rest.length;) {
        struct word value = split(&rest, ' ');
        if (value.length)
            TRY(take_word(line, value, place++, key, err));
    }
    if (line->has_id && line->has_digest && line->has_tenant)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "line %zu has no %s=", line->number,
                     !line->has_id       ? "id"
                     : !line->has_digest ? "sha256"
                                         : "tenant");
}

static enum status add_key(struct access_keys *keys, const struct access_key *key, size_t number,
                           struct error *err)
{
    if (keys->count == ACCESS_KEYS_MAX)
        return error_set(err, STATUS_LIMIT, "line %zu: more than %d keys", number, ACCESS_KEYS_MAX);
    if ((keys->count & (keys->count - 1)) == 0) {
        size_t capacity = keys->count ? 2 * keys->count : 1;
        struct access_key *items = realloc(keys->items, capacity * sizeof *items);
        if (!items)
            return error_set(err, STATUS_LIMIT, "no memory for the keys");
        keys->items = items;
    }
    keys->items[keys->count++] = *key;
    return STATUS_OK;
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp(((const struct access_key *)a)->id, ((const struct access_key *)b)->id);
}

static int compare_digests(const void *a, const void *b)
{
    return memcmp(((const struct access_key *)a)->digest.bytes,
                  ((const struct access_key *)b)->digest.bytes, DIGEST_BYTES);
}

/* Sorts the keys by digest. STATUS_INVALID: an id or a digest occurs twice. */
static enum status check_unique(struct access_keys *keys, struct error *err)
{
    if (!keys->count)
        return STATUS_OK;
    qsort(keys->items, keys->count, sizeof *keys->items, compare_ids);
    for (size_t i = 1; i < keys->count; i++)
        if (!compare_ids(&keys->items[i - 1], &keys->items[i]))
            return error_set(err, STATUS_INVALID, "two lines have the id %s", keys->items[i].id);
    qsort(keys->items, keys->count, sizeof *keys->items, compare_digests);
    for (size_t i = 1; i < keys->count; i++)
        if (!compare_digests(&keys->items[i - 1], &keys->items[i]))
            return error_set(err, STATUS_INVALID, "%s and %s are the same key",
                             keys->items[i - 1].id, keys->items[i].id);
    return STATUS_OK;
}

static enum status parse_lines(struct word rest, struct access_keys *keys, struct error *err)
{
    for (size_t number = 1; rest.length; number++) {
        struct word text = split(&rest, '\n');
        if (text.length > ACCESS_KEYS_MAX_LINE_BYTES)
            return error_set(err, STATUS_LIMIT, "line %zu has over %d bytes", number,
                             ACCESS_KEYS_MAX_LINE_BYTES);
        if (text.length && text.text[text.length - 1] == '\r')
            text.length--;
        while (text.length && *text.text == ' ')
            text = (struct word){text.text + 1, text.length - 1};
        if (!text.length || *text.text == '#')
            continue;
        struct line line = {.number = number};
        struct access_key key;
        TRY(parse_line(text, &line, &key, err));
        TRY(add_key(keys, &key, number, err));
    }
    return check_unique(keys, err);
}

enum status access_keys_parse(const char *text, size_t size, struct access_keys *keys,
                              struct error *err)
{
    struct access_keys parsed = {0};
    if (size > ACCESS_KEYS_MAX_FILE_BYTES)
        return error_set(err, STATUS_LIMIT, "the file has over %u bytes",
                         ACCESS_KEYS_MAX_FILE_BYTES);
    enum status status = parse_lines((struct word){text, size}, &parsed, err);
    if (status != STATUS_OK)
        access_keys_deinit(&parsed);
    else
        *keys = parsed;
    return status;
}

enum status access_keys_check_classes(const struct access_keys *keys,
                                      const struct slo_classes *classes, struct error *err)
{
    struct str wrong, names;
    str_init(&wrong, SHOWN_BYTES);
    str_init(&names, SHOWN_BYTES);
    for (size_t i = 0; i < keys->count; i++) {
        const struct access_key *key = &keys->items[i];
        struct word rest = {key->classes, strlen(key->classes)};
        for (struct word name; (name = split(&rest, ',')).length;)
            if (slo_find(classes, (struct text){name.text, name.length}) == SLO_NONE)
                str_addf(&wrong, "%s%.*s of key %s", wrong.length ? ", " : "", (int)name.length,
                         name.text, key->id);
    }
    slo_add_names(classes, &names);
    enum status status = STATUS_OK;
    if (wrong.length)
        status = error_set(err, STATUS_INVALID,
                           "classes= names SLO classes that this router doesn't have: %s%s. It has "
                           "%s%s (slo-class)",
                           wrong.data, wrong.truncated ? "..." : "",
                           classes->count ? names.data : "none", names.truncated ? "..." : "");
    str_deinit(&wrong);
    str_deinit(&names);
    return status;
}

void access_keys_deinit(struct access_keys *keys)
{
    free(keys->items);
    *keys = (struct access_keys){0};
}

const struct access_key *access_keys_find(const struct access_keys *keys,
                                          const struct digest *digest)
{
    size_t low = 0, high = keys->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (memcmp(keys->items[middle].digest.bytes, digest->bytes, DIGEST_BYTES) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == keys->count || !digest_equal(&keys->items[low].digest, digest))
        return NULL;
    return &keys->items[low];
}
