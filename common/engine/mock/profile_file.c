/* Reads profiles, from the build or from files. They are JSON; deploy/profiles/README.md lists the
 * members. All mistakes of a file come in one sentence. */
#include "common/base/json/json.h"
#include "common/base/str.h"
#include "common/engine/mock/mock_engine.h"

#include <stdio.h>
#include <string.h>

#define MAX_BYTES    65536
#define MAX_MISTAKES 440 /* bytes of text: a struct error holds a few more */
#define MAX_US       1e9 /* 1000 s */

static const struct json_limits limits = {.max_bytes = MAX_BYTES, .max_depth = 8};

struct reader {
    const struct json_value *root;
    struct str mistakes;
};

/* `section`: NULL: the mistake is at the top. */
static void note(struct reader *reader, const char *section, const char *text)
{
    str_addf(&reader->mistakes, "%s%s%s%s", reader->mistakes.length ? "; " : "",
             section ? section : "", section ? ": " : "", text);
}

/* One number: where it goes, its bounds, whether it may be absent. */
struct number {
    const char *section; /* NULL: at the top */
    const char *key;
    double *value;
    double min, max;
    bool needed;
};

static void read_number(struct reader *reader, const struct number *number)
{
    const struct json_value *object = reader->root;
    struct error err;
    if (number->section)
        object = json_find(object, number->section);
    enum status status = STATUS_NOT_FOUND;
    if (object)
        status =
            json_get_double(object, number->key, number->min, number->max, number->value, &err);
    else
        error_set(&err, status, "'%s' is missing", number->key);
    if (status == STATUS_OK || (status == STATUS_NOT_FOUND && !number->needed))
        return;
    note(reader, number->section, err.text);
}

/* Notes members that no profile has: a typing error would be taken for an absent one. */
static void check_keys(struct reader *reader, const struct json_value *object, const char *section,
                       const char *const *known)
{
    for (struct json_member member = {0}; json_next(object, &member);) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], member.key) != 0)
            i++;
        char text[120];
        snprintf(text, sizeof text, "no profile has the member '%.60s'", member.key);
        if (!known[i])
            note(reader, section, text);
    }
}

static void check_all_keys(struct reader *reader)
{
    static const struct {
        const char *section;
        const char *const keys[6];
    } tables[] = {{"prefill", {"step_us", "row_us", "position_us", "tile_rows"}},
                  {"decode", {"step_us", "row_us", "context_us", "buckets"}},
                  {"decode_large", {"from_rows", "step_us", "row_us", "context_us"}},
                  {"noise", {"sigma", "seed"}},
                  {"link", {"bytes_per_second", "latency_us"}}};
    static const char *const top[] = {"name",
                                      "source",
                                      "prefill",
                                      "decode",
                                      "decode_large",
                                      "noise",
                                      "link",
                                      "kv_tokens",
                                      "kv_bytes_per_token",
                                      "swap_bytes_per_second",
                                      NULL};
    check_keys(reader, reader->root, NULL, top);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        check_keys(reader, json_find(reader->root, tables[i].section), tables[i].section,
                   tables[i].keys);
}

static void read_buckets(struct reader *reader, struct step_profile *profile)
{
    const struct json_value *list = json_find(json_find(reader->root, "decode"), "buckets");
    size_t count = json_count(list);
    if (!list)
        return;
    if (json_kind(list) != JSON_ARRAY || count > STEP_PROFILE_MAX_BUCKETS) {
        note(reader, "decode", "'buckets' must be a list of at most 64 numbers");
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t rows = 0, least = i ? (uint64_t)profile->decode_buckets[i - 1] + 1 : 1;
        struct error err;
        if (json_as_u64(json_at(list, i), least, 65536, &rows, &err) != STATUS_OK) {
            note(reader, "decode", "'buckets' must be ascending numbers from 1 to 65536");
            return;
        }
        profile->decode_buckets[i] = (uint32_t)rows;
    }
    profile->bucket_count = (uint32_t)count;
}

/* Numbers of the file that are whole numbers of the struct. */
struct whole {
    double large_from, tile, seed, kv_tokens, kv_bytes, latency_us;
};

static void read_numbers(struct reader *reader, struct step_profile *p, struct whole *w)
{
    const bool large = json_find(reader->root, "decode_large");
    const struct number numbers[] = {
        {"prefill", "step_us", &p->prefill.step_us, 0, MAX_US, true},
        {"prefill", "row_us", &p->prefill.prefill_row_us, 0, MAX_US, true},
        {"prefill", "position_us", &p->prefill.prefill_position_us, 0, MAX_US, true},
        {"prefill", "tile_rows", &w->tile, 1, 65536, false},
        {"decode", "step_us", &p->decode.step_us, 0, MAX_US, true},
        {"decode", "row_us", &p->decode.decode_row_us, 0, MAX_US, true},
        {"decode", "context_us", &p->decode.decode_context_us, 0, MAX_US, true},
        {"decode_large", "from_rows", &w->large_from, 1, 65536, large},
        {"decode_large", "step_us", &p->decode_large.step_us, 0, MAX_US, large},
        {"decode_large", "row_us", &p->decode_large.decode_row_us, 0, MAX_US, large},
        {"decode_large", "context_us", &p->decode_large.decode_context_us, 0, MAX_US, large},
        {"noise", "sigma", &p->noise_sigma, 0, 2, false},
        {"noise", "seed", &w->seed, 0, 0x1p53, false},
        {"link", "bytes_per_second", &p->link_bytes_per_second, 0, 1e15, false},
        {"link", "latency_us", &w->latency_us, 0, MAX_US, false},
        {NULL, "kv_tokens", &w->kv_tokens, 256, 0x1p30, true},
        {NULL, "kv_bytes_per_token", &w->kv_bytes, 1, 1e12, true},
        {NULL, "swap_bytes_per_second", &p->swap_bytes_per_second, 0, 1e15, false},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        read_number(reader, &numbers[i]);
}

static void read_all(struct reader *reader, struct step_profile *profile)
{
    struct whole whole = {0};
    struct error err;
    const char *name = "";
    if (json_get_string(reader->root, "name", &name, NULL, &err) != STATUS_OK)
        note(reader, NULL, err.text);
    else if (!*name || !str_copy(profile->name, sizeof profile->name, name))
        note(reader, NULL, "'name' must have 1 to 63 bytes");
    check_all_keys(reader);
    read_numbers(reader, profile, &whole);
    read_buckets(reader, profile);
    profile->prefill_tile = (uint32_t)whole.tile;
    profile->large_from = (uint32_t)whole.large_from;
    profile->noise_seed = (uint64_t)whole.seed;
    profile->kv_tokens = (uint64_t)whole.kv_tokens;
    profile->kv_bytes_per_token = (uint64_t)whole.kv_bytes;
    profile->link_latency_us = (uint64_t)whole.latency_us;
}

/* Takes over `json`. */
static enum status read_json(struct json *json, struct step_profile *out, struct error *err)
{
    struct reader reader = {.root = json_root(json)};
    struct step_profile profile = {.name = ""};
    enum status status = STATUS_OK;
    str_init(&reader.mistakes, MAX_MISTAKES);
    if (json_kind(reader.root) != JSON_OBJECT)
        note(&reader, NULL, "a profile is a JSON object");
    else
        read_all(&reader, &profile);
    if (reader.mistakes.length)
        status = error_set(err, STATUS_INVALID, "%s%s", reader.mistakes.data,
                           reader.mistakes.truncated ? " ..." : "");
    else
        *out = profile;
    str_deinit(&reader.mistakes);
    json_destroy(json);
    return status;
}

enum status profile_parse(const char *text, size_t length, struct step_profile *profile,
                          struct error *err)
{
    struct json *json;
    TRY(json_parse(text, length, limits, &json, err));
    return read_json(json, profile, err);
}

enum status profile_read(const char *name, struct step_profile *profile, struct error *err)
{
    size_t length = strlen(name);
    if (strchr(name, '/') || (length > 5 && !strcmp(name + length - 5, ".json"))) {
        struct json *json;
        TRY(json_read_file(name, limits, &json, err));
        enum status status = read_json(json, profile, err);
        return status == STATUS_OK ? status : error_prefix(err, status, "%.100s", name);
    }
    char names[400];
    size_t used = 0;
    for (size_t i = 0; i < shipped_profile_count; i++) {
        const struct shipped_profile *shipped = &shipped_profiles[i];
        if (!strcmp(shipped->name, name))
            return profile_parse(shipped->text, strlen(shipped->text), profile, err);
        if (used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                     shipped->name);
    }
    return error_set(err, STATUS_NOT_FOUND, "no profile '%.40s': give a file (PATH.json), or %s",
                     name, names);
}

enum status profile_check(const char *name, struct error *err)
{
    struct step_profile profile;
    return profile_read(name, &profile, err);
}
