#include "common/language/model_config/end_ids.h"

#include "common/base/json/json.h"
#include "common/base/json/json_quote.h"

#include <inttypes.h>
#include <stdio.h>

#define PATH_BYTES 4096
#define DEPTH      32

/* Adds one id, or one more source of it. False: there are too many. */
static bool add_id(struct end_ids *end_ids, uint32_t id, enum end_source source)
{
    uint32_t at = 0;
    while (at < end_ids->count && end_ids->ids[at] != id)
        at++;
    if (at == MODEL_MAX_END_IDS)
        return false;
    if (at == end_ids->count) {
        end_ids->ids[end_ids->count++] = id;
        end_ids->sources[at] = 0;
        end_ids->names[at][0] = 0;
    }
    end_ids->sources[at] |= (uint8_t)source;
    return true;
}

enum status end_ids_add(struct end_ids *end_ids, const struct json_value *object,
                        enum end_source source, uint32_t vocab, struct error *err)
{
    const struct json_value *value = json_find(object, "eos_token_id");
    if (!value)
        return STATUS_OK;
    bool list = json_kind(value) == JSON_ARRAY;
    size_t count = list ? json_count(value) : 1;
    if (count > MODEL_MAX_END_IDS)
        return error_set(err, STATUS_LIMIT, "\"eos_token_id\": at most %d ids, found %zu",
                         MODEL_MAX_END_IDS, count);
    struct end_ids all = *end_ids;
    for (size_t i = 0; i < count; i++) {
        int64_t id;
        enum status status =
            json_as_i64(list ? json_at(value, i) : value, 0, (int64_t)vocab - 1, &id, err);
        if (status != STATUS_OK)
            return error_prefix(err, status, "\"eos_token_id\"");
        if (!add_id(&all, (uint32_t)id, source))
            return error_set(err, STATUS_LIMIT,
                             "\"eos_token_id\": at most %d ids in all files together",
                             MODEL_MAX_END_IDS);
    }
    *end_ids = all;
    return STATUS_OK;
}

/* ----------------------------------------------------------------------------------- eos_token */

/* Parses a file of the folder. NULL: it doesn't exist, or it can't be read, with a note. */
static struct json *read_file(struct end_ids *end_ids, const char *model_dir, const char *name,
                              size_t max_bytes)
{
    char path[PATH_BYTES];
    struct json_limits limits = {.max_bytes = max_bytes, .max_depth = DEPTH};
    struct json *json = NULL;
    struct error why;
    if (snprintf(path, sizeof path, "%s/%s", model_dir, name) >= (int)sizeof path)
        return NULL;
    enum status status = json_read_file(path, limits, &json, &why);
    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        error_set(&end_ids->note, status, "eos_token isn't known: %s", why.text);
    return status == STATUS_OK ? json : NULL;
}

static bool same(struct text text, const struct json_value *value)
{
    struct text other;
    return json_as_string(value, &other.bytes, &other.length, NULL) == STATUS_OK &&
           other.length == text.length && !memcmp(other.bytes, text.bytes, text.length);
}

static void name_id(struct end_ids *end_ids, uint32_t id, const struct json_value *content)
{
    const char *text;
    size_t length;
    if (json_as_string(content, &text, &length, NULL) != STATUS_OK)
        return;
    for (uint32_t i = 0; i < end_ids->count; i++)
        if (end_ids->ids[i] == id && length < sizeof end_ids->names[i])
            memcpy(end_ids->names[i], text, length + 1);
}

/* Looks through added_tokens_decoder: {"id": {"content": ...}, ...}. Names the ids that are known,
 * and sets *id to the token's. False: the token isn't there. */
static bool find_in_config(struct end_ids *end_ids, const struct json_value *decoder,
                           struct text token, uint64_t *id)
{
    bool found = false;
    for (struct json_member m = {0}; json_next(decoder, &m);) {
        uint64_t number;
        const struct json_value *content = json_find(m.value, "content");
        if (!str_to_u64(m.key, 0, UINT32_MAX, &number))
            continue;
        name_id(end_ids, (uint32_t)number, content);
        if (!found && same(token, content)) {
            *id = number;
            found = true;
        }
    }
    return found;
}

/* The same in a tokenizer.json: among its added tokens, then in the model's vocabulary. */
static bool find_in_tokenizer(struct end_ids *end_ids, const struct json_value *root,
                              struct text token, uint64_t *id)
{
    const struct json_value *added = json_find(root, "added_tokens");
    bool found = false;
    for (size_t i = 0; json_kind(added) == JSON_ARRAY && i < json_count(added); i++) {
        const struct json_value *content = json_find(json_at(added, i), "content");
        int64_t number;
        if (json_get_i64(json_at(added, i), "id", 0, UINT32_MAX, &number, NULL) != STATUS_OK)
            continue;
        name_id(end_ids, (uint32_t)number, content);
        if (!found && same(token, content)) {
            *id = (uint64_t)number;
            found = true;
        }
    }
    if (found || strlen(token.bytes) != token.length)
        return found;
    const struct json_value *vocab = json_find(json_find(root, "model"), "vocab");
    return json_as_u64(json_find(vocab, token.bytes), 0, UINT32_MAX, id, NULL) == STATUS_OK;
}

/* Finds the token's id, and names ids on the way. */
static bool find_token(struct end_ids *end_ids, const char *model_dir,
                       const struct json_value *config, struct text token, uint64_t *id)
{
    if (find_in_config(end_ids, json_find(config, "added_tokens_decoder"), token, id))
        return true;
    struct json *tokenizer = read_file(end_ids, model_dir, "tokenizer.json", END_IDS_LIMIT_FILE);
    bool found = tokenizer && find_in_tokenizer(end_ids, json_root(tokenizer), token, id);
    json_destroy(tokenizer);
    return found;
}

static void add_token(struct end_ids *end_ids, const char *model_dir, uint32_t vocab,
                      const struct json_value *config)
{
    const struct json_value *value = json_find(config, "eos_token");
    uint64_t id;
    struct text token;
    if (json_kind(value) == JSON_OBJECT)
        value = json_find(value, "content");
    if (json_as_string(value, &token.bytes, &token.length, NULL) != STATUS_OK || !token.length)
        token = (struct text){"", 0}; /* the names are of use without it, too */
    bool found = find_token(end_ids, model_dir, config, token, &id);
    if (!token.length)
        return;
    if (!found)
        error_set(&end_ids->note, STATUS_NOT_FOUND,
                  "eos_token \"%.60s\" of tokenizer_config.json is no token of tokenizer.json",
                  token.bytes);
    else if (id >= vocab)
        error_set(&end_ids->note, STATUS_INVALID,
                  "eos_token \"%.60s\" has id %" PRIu64 ", but the model's ids end at %u",
                  token.bytes, id, vocab - 1);
    else if (!add_id(end_ids, (uint32_t)id, END_FROM_TOKENIZER))
        error_set(&end_ids->note, STATUS_LIMIT,
                  "eos_token \"%.60s\" is one end token too many: at most %d", token.bytes,
                  MODEL_MAX_END_IDS);
    else if (token.length < END_IDS_NAME_BYTES)
        name_id(end_ids, (uint32_t)id, value);
}

void end_ids_add_token(struct end_ids *end_ids, const char *model_dir, uint32_t vocab)
{
    end_ids->note.text[0] = 0;
    struct json *json =
        read_file(end_ids, model_dir, "tokenizer_config.json", END_IDS_LIMIT_CONFIG);
    if (json)
        add_token(end_ids, model_dir, vocab, json_root(json));
    json_destroy(json);
}

void end_ids_describe(const struct end_ids *end_ids, struct str *line)
{
    static const struct {
        enum end_source source;
        const char *file;
    } files[] = {{END_FROM_CONFIG, "config.json"},
                 {END_FROM_GENERATION, "generation_config.json"},
                 {END_FROM_TOKENIZER, "tokenizer_config.json"}};
    for (uint32_t i = 0; i < end_ids->count; i++) {
        str_addf(line, "%s%u", i ? ", " : "", end_ids->ids[i]);
        if (*end_ids->names[i]) {
            str_add(line, " ");
            json_quote(line, end_ids->names[i], strlen(end_ids->names[i]));
        }
        const char *before = " (";
        for (size_t file = 0; file < sizeof files / sizeof *files; file++) {
            if (!(end_ids->sources[i] & files[file].source))
                continue;
            str_addf(line, "%s%s", before, files[file].file);
            before = ", ";
        }
        str_add(line, ")");
    }
    if (!end_ids->count)
        str_add(line, "none: an answer ends at its limit of tokens");
    if (*end_ids->note.text)
        str_addf(line, "; %s", end_ids->note.text);
}
