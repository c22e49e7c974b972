#include "common/language/text/decoder_steps.h"

#include <string.h>

static enum status replace(const struct decoder_step *step, struct regex_scratch *scratch,
                           const struct str *in, struct str *out, struct error *err)
{
    struct pattern_search search = {.scratch = scratch, .text = in->data, .length = in->length};
    if (in->length == 0) /* not even an empty match */
        return STATUS_OK;
    return pattern_replace(&step->pattern, &search, step->content, step->content_length, out, err);
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

enum status decoder_steps_run(const struct decoder *decoder, struct regex_scratch *scratch,
                              bool first, struct str *text, struct str *other, struct error *err)
{
    for (size_t i = 0; i < decoder->step_count; i++) {
        const struct decoder_step *step = &decoder->steps[i];
        str_clear(other);
        if (step->kind == STEP_REPLACE)
            TRY(replace(step, scratch, text, other, err));
        else if (step->kind == STEP_STRIP)
            strip(step, text, other);
        else
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

bool decoder_steps_know_first(const struct decoder *decoder)
{
    for (size_t i = 0; i < decoder->step_count; i++)
        if (decoder->steps[i].kind == STEP_METASPACE &&
            decoder->steps[i].metaspace.prepend != PREPEND_NEVER)
            return true;
    return false;
}
