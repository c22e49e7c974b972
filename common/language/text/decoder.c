#include "common/language/text/decoder.h"

#include "common/base/assert.h"
#include "common/base/str.h"
#include "common/base/utf8.h"
#include "common/language/text/pipeline.h"
#include "common/language/text/regex.h"
#include "common/language/text/vocabulary.h"

#include <stdlib.h>

/* A step that each token's spelling goes through, in order. */
struct decoder_step {
    enum { STEP_REPLACE, STEP_STRIP, STEP_METASPACE } kind;
    struct pattern pattern; /* REPLACE */
    char *content;
    size_t content_length;
    char stripped[5]; /* STRIP: one character */
    size_t stripped_length, start, stop;
    struct metaspace metaspace;
};

/* Memory of loading: two texts to work in. */
struct decoder_room {
    struct regex_scratch *scratch;
    struct str text, other;
};

/* A chain of components that is being read. `place` only goes on; each component is allowed at some
 * places. */
struct reading {
    struct decoder *decoder;
    enum { ON_TOKENS, BEHIND_BYTES, BEHIND_FUSE, BEHIND_STRIP, BEHIND_BYTE_LEVEL } place;
    size_t seen; /* components, except Sequences */
    struct error *err;
};

static enum status not_here(const struct reading *reading, const char *type)
{
    static const char *const places[] = {"here", "behind ByteFallback", "behind Fuse",
                                         "behind Strip", "behind ByteLevel"};
    return error_set(reading->err, STATUS_UNSUPPORTED, "\"%s\" %s isn't supported", type,
                     places[reading->place]);
}

/* Reads a Strip's values. */
static enum status read_strip_values(struct decoder_step *step, const struct json_value *json,
                                     struct error *err)
{
    const char *content;
    size_t length;
    int64_t start, stop;
    TRY(json_get_string(json, "content", &content, &length, err));
    if (length == 0 || utf8_next(content, length).length != length)
        return error_set(err, STATUS_INVALID, "\"content\" isn't one character");
    TRY(json_get_i64(json, "start", 0, DECODER_LIMIT_STRIP, &start, err));
    TRY(json_get_i64(json, "stop", 0, DECODER_LIMIT_STRIP, &stop, err));
    memcpy(step->stripped, content, length);
    step->stripped_length = length;
    step->start = (size_t)start;
    step->stop = (size_t)stop;
    return STATUS_OK;
}

static enum status next_step(struct reading *reading, struct decoder_step **step)
{
    if (reading->decoder->step_count == DECODER_LIMIT_STEPS)
        return error_set(reading->err, STATUS_LIMIT, "more than %d steps", DECODER_LIMIT_STEPS);
    *step = &reading->decoder->steps[reading->decoder->step_count++];
    return STATUS_OK;
}

static enum status read_replace(struct reading *reading, const struct json_value *json)
{
    struct decoder_step *step = NULL;
    const struct json_value *pattern;
    const char *content;
    if (reading->place != ON_TOKENS)
        return not_here(reading, "Replace");
    TRY(next_step(reading, &step));
    TRY(json_get_object(json, "pattern", &pattern, reading->err));
    TRY(pattern_read(&step->pattern, pattern, reading->err));
    TRY(json_get_string(json, "content", &content, &step->content_length, reading->err));
    if (step->content_length > DECODER_LIMIT_TOKEN)
        return error_set(reading->err, STATUS_LIMIT,
                         "\"content\" of %zu bytes is over the limit of %u", step->content_length,
                         DECODER_LIMIT_TOKEN);
    step->content = malloc(step->content_length + 1);
    ASSERT(step->content);
    memcpy(step->content, content, step->content_length);
    return STATUS_OK;
}

static enum status read_strip(struct reading *reading, const struct json_value *json)
{
    struct decoder *decoder = reading->decoder;
    struct decoder_step values = {.kind = STEP_STRIP}, *step = NULL;
    TRY(read_strip_values(&values, json, reading->err));
    if (reading->place == ON_TOKENS) {
        TRY(next_step(reading, &step));
        *step = values;
        return STATUS_OK;
    }
    if (reading->place != BEHIND_FUSE)
        return not_here(reading, "Strip");
    if (values.stop > 0)
        return error_set(reading->err, STATUS_UNSUPPORTED,
                         "\"Strip\" with \"stop\" over 0 behind Fuse isn't supported");
    memcpy(decoder->strip, values.stripped, sizeof decoder->strip);
    decoder->strip_length = values.stripped_length;
    decoder->strip_count = values.start;
    reading->place = BEHIND_STRIP;
    return STATUS_OK;
}

static enum status read_metaspace(struct reading *reading, const struct json_value *json)
{
    struct decoder_step *step = NULL;
    if (reading->place != ON_TOKENS)
        return not_here(reading, "Metaspace");
    TRY(next_step(reading, &step));
    step->kind = STEP_METASPACE;
    return metaspace_read(&step->metaspace, json, reading->err);
}

static enum status read_byte_fallback(struct reading *reading, const struct json_value *json)
{
    (void)json;
    if (reading->place != ON_TOKENS)
        return not_here(reading, "ByteFallback");
    reading->decoder->byte_fallback = true;
    reading->place = BEHIND_BYTES;
    return STATUS_OK;
}

static enum status read_fuse(struct reading *reading, const struct json_value *json)
{
    (void)json;
    if (reading->place < BEHIND_FUSE) /* otherwise there is nothing left to fuse */
        reading->place = BEHIND_FUSE;
    return STATUS_OK;
}

static enum status read_byte_level(struct reading *reading, const struct json_value *json)
{
    (void)json;
    if (reading->seen > 1)
        return error_set(reading->err, STATUS_UNSUPPORTED,
                         "\"ByteLevel\" behind another decoder isn't supported");
    reading->decoder->kind = DECODER_BYTES;
    reading->place = BEHIND_BYTE_LEVEL;
    return STATUS_OK;
}

static enum status read_component(struct reading *reading, const struct json_value *json, int depth)
{
    static const struct {
        const char *type;
        enum status (*read)(struct reading *reading, const struct json_value *json);
    } kinds[] = {
        {"ByteLevel", read_byte_level},
        {"Replace", read_replace},
        {"Strip", read_strip},
        {"Metaspace", read_metaspace},
        {"Fuse", read_fuse},
        {"ByteFallback", read_byte_fallback},
    };
    const char *type;
    TRY(json_get_string(json, "type", &type, NULL, reading->err));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(type, kinds[i].type) != 0)
            continue;
        reading->seen++;
        return kinds[i].read(reading, json);
    }
    if (strcmp(type, "Sequence") != 0)
        return error_set(
            reading->err, STATUS_UNSUPPORTED,
            "\"%.40s\" isn't supported (ByteLevel, Metaspace, Replace, ByteFallback, Fuse, "
            "Strip and Sequence are)",
            type);
    const struct json_value *parts;
    TRY(json_get_array(json, "decoders", &parts, reading->err));
    if (depth == PIPELINE_LIMIT_DEPTH)
        return error_set(reading->err, STATUS_LIMIT, "Sequences are nested deeper than %d", depth);
    for (size_t i = 0; i < json_count(parts); i++) {
        enum status status = read_component(reading, json_at(parts, i), depth + 1);
        if (status != STATUS_OK)
            return error_prefix(reading->err, status, "\"decoders\"[%zu]", i);
    }
    return STATUS_OK;
}

enum status decoder_init(struct decoder *decoder, const struct json_value *json, struct error *err)
{
    *decoder = (struct decoder){.kind = json ? DECODER_PIECES : DECODER_SPACES};
    decoder->steps = calloc(DECODER_LIMIT_STEPS, sizeof *decoder->steps);
    ASSERT(decoder->steps);
    struct reading reading = {.decoder = decoder, .err = err};
    enum status status = json ? read_component(&reading, json, 0) : STATUS_OK;
    if (status != STATUS_OK)
        decoder_deinit(decoder);
    return status;
}

void decoder_deinit(struct decoder *decoder)
{
    for (size_t i = 0; i < decoder->step_count; i++) {
        pattern_deinit(&decoder->steps[i].pattern);
        free(decoder->steps[i].content);
    }
    free(decoder->steps);
    decoder_seal(decoder);
    free(decoder->tokens);
    free(decoder->pool);
    *decoder = (struct decoder){0};
}

void decoder_reserve(struct decoder *decoder, uint32_t count)
{
    ASSERT(!decoder->tokens);
    decoder->tokens = calloc(count, sizeof *decoder->tokens);
    ASSERT(decoder->tokens);
    decoder->count = count;
    decoder->room = malloc(sizeof *decoder->room);
    ASSERT(decoder->room);
    decoder->room->scratch = regex_scratch_create();
    str_init(&decoder->room->text, DECODER_LIMIT_TOKEN);
    str_init(&decoder->room->other, DECODER_LIMIT_TOKEN);
}

void decoder_seal(struct decoder *decoder)
{
    if (!decoder->room)
        return;
    str_deinit(&decoder->room->other);
    str_deinit(&decoder->room->text);
    regex_scratch_destroy(decoder->room->scratch);
    free(decoder->room);
    decoder->room = NULL;
}

static void strip(const struct decoder_step *step, const struct str *in, struct str *out)
{
    const char *from = in->data, *to = in->data + in->length;
    size_t width = step->stripped_length;
    for (size_t i = 0; i < step->start && (size_t)(to - from) >= width &&
                       memcmp(from, step->stripped, width) == 0;
         i++)
        from += width;
    for (size_t i = 0; i < step->stop && (size_t)(to - from) >= width &&
                       memcmp(to - width, step->stripped, width) == 0;
         i++)
        to -= width;
    str_append(out, from, (size_t)(to - from));
}

/* Puts spaces in place of Metaspace's character. */
static void put_spaces(const struct metaspace *metaspace, bool first, const struct str *in,
                       struct str *out)
{
    for (size_t at = 0; at < in->length;) {
        if (in->length - at < metaspace->length ||
            memcmp(in->data + at, metaspace->replacement, metaspace->length) != 0) {
            str_append(out, in->data + at++, 1);
            continue;
        }
        if (!first || metaspace->prepend == PREPEND_NEVER)
            str_append(out, " ", 1);
        at += metaspace->length;
    }
}

/* Replaces `text`, a spelling, by the text of the token; `other` is room. `first`: of the first
 * token of a text. STATUS_LIMIT, or the error of a pattern. */
static enum status run_steps(const struct decoder *decoder, struct regex_scratch *scratch,
                             bool first, struct str *text, struct str *other, struct error *err)
{
    for (size_t i = 0; i < decoder->step_count; i++) {
        const struct decoder_step *step = &decoder->steps[i];
        str_clear(other);
        struct pattern_search search = {
            .scratch = scratch, .text = text->data, .length = text->length};
        if (step->kind == STEP_REPLACE && text->length > 0) /* no match in an empty text */
            TRY(pattern_replace(&step->pattern, &search, step->content, step->content_length, other,
                                err));
        else if (step->kind == STEP_STRIP)
            strip(step, text, other);
        else if (step->kind == STEP_METASPACE)
            put_spaces(&step->metaspace, first, text, other);
        if (other->truncated)
            return error_set(err, STATUS_LIMIT,
                             "a token becomes text of more than %u bytes in the decoder",
                             DECODER_LIMIT_TOKEN);
        struct str made = *other;
        *other = *text;
        *text = made;
    }
    return STATUS_OK;
}

static int hexadecimal(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    char small = (char)(c | 32);
    return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

/* Reads "<0xE6>". "+6" is a number too, as Rust's from_str_radix reads it for `tokenizers`. */
static bool read_byte(const struct str *text, char *byte)
{
    if (text->length != 6 || memcmp(text->data, "<0x", 3) != 0 || text->data[5] != '>')
        return false;
    int high = text->data[3] == '+' ? 0 : hexadecimal(text->data[3]);
    int low = hexadecimal(text->data[4]);
    *byte = (char)(high * 16 + low);
    return high >= 0 && low >= 0;
}

static enum status pool_add(struct decoder *decoder, const char *bytes, size_t length,
                            uint32_t *offset, struct error *err)
{
    size_t needed = decoder->pool_bytes + length;
    if (needed > DECODER_LIMIT_BYTES)
        return error_set(err, STATUS_LIMIT,
                         "the texts of all tokens are over the limit of %u bytes",
                         DECODER_LIMIT_BYTES);
    if (needed > decoder->pool_capacity || !decoder->pool) {
        decoder->pool_capacity = 2 * needed + 4096;
        decoder->pool = realloc(decoder->pool, decoder->pool_capacity);
        ASSERT(decoder->pool);
    }
    memcpy(decoder->pool + decoder->pool_bytes, bytes, length);
    *offset = (uint32_t)decoder->pool_bytes;
    decoder->pool_bytes = needed;
    return STATUS_OK;
}

/* Sets the token's text, as the first of a text or not. */
static enum status work_out(struct decoder *decoder, bool first, const char *spelling,
                            size_t length, struct decoded_token *token, struct error *err)
{
    struct decoder_room *room = decoder->room;
    char byte;
    uint32_t *offset = first ? &token->first_offset : &token->offset;
    str_clear(&room->text);
    str_append(&room->text, spelling, length);
    TRY(run_steps(decoder, room->scratch, first, &room->text, &room->other, err));
    if (decoder->byte_fallback && read_byte(&room->text, &byte)) {
        token->is_byte = true;
        str_clear(&room->text);
        str_append(&room->text, &byte, 1);
    }
    *(first ? &token->first_length : &token->length) = (uint32_t)room->text.length;
    return pool_add(decoder, room->text.data, room->text.length, offset, err);
}

/* Sets the token's bytes: those that its spelling in the byte-level alphabet means. */
static enum status add_bytes(struct decoder *decoder, const char *spelling, size_t length,
                             struct decoded_token *token, struct error *err)
{
    char *bytes = malloc(length + 1);
    ASSERT(bytes);
    size_t count = length;
    bool spelled_in_bytes = byte_level_read(spelling, length, bytes, &count);
    token->length = (uint32_t)count;
    enum status status =
        pool_add(decoder, spelled_in_bytes ? bytes : spelling, count, &token->offset, err);
    free(bytes);
    return status;
}

enum status decoder_add(struct decoder *decoder, uint32_t id, const char *spelling, size_t length,
                        struct error *err)
{
    ASSERT(id < decoder->count);
    struct decoded_token token = {.present = true};
    if (decoder->kind == DECODER_BYTES)
        TRY(add_bytes(decoder, spelling, length, &token, err));
    else
        TRY(work_out(decoder, false, spelling, length, &token, err));
    token.first_offset = token.offset;
    token.first_length = token.length;
    bool differs = false; /* a token reads differently at the start of a text */
    for (size_t i = 0; i < decoder->step_count; i++)
        differs |= decoder->steps[i].kind == STEP_METASPACE &&
                   decoder->steps[i].metaspace.prepend != PREPEND_NEVER;
    if (differs)
        TRY(work_out(decoder, true, spelling, length, &token, err));
    decoder->tokens[id] = token;
    return STATUS_OK;
}

const struct decoded_token *decoder_token(const struct decoder *decoder, uint32_t id)
{
    return id < decoder->count && decoder->tokens[id].present ? &decoder->tokens[id] : NULL;
}
