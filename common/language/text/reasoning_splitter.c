#include "common/language/text/reasoning_splitter.h"

#include <string.h>

void reasoning_splitter_init(struct reasoning_splitter *splitter, const struct reasoning_tags *tags)
{
    *splitter = (struct reasoning_splitter){.tags = *tags, .state = REASONING_BEFORE};
    if (!*tags->begin || !*tags->end)
        splitter->state = REASONING_CONTENT;
    else if (tags->inside)
        splitter->state = REASONING_INSIDE;
    splitter->reasoned = splitter->may_repeat = splitter->state == REASONING_INSIDE;
}

/* Returns how many bytes of `tag` a text ends with that ended with `matched` of them, and then has
 * `byte`. */
static uint8_t advance(const char *tag, uint8_t matched, char byte)
{
    char ending[REASONING_TAG_BYTES];
    size_t length = matched;
    memcpy(ending, tag, length);
    ending[length++] = byte;
    for (size_t skipped = 0; skipped < length; skipped++)
        if (!memcmp(ending + skipped, tag, length - skipped))
            return (uint8_t)(length - skipped);
    return 0;
}

/* Gives bytes of reasoning, and the newlines before them. */
static void give(struct reasoning_splitter *splitter, const char *bytes, size_t count,
                 struct str *reasoning)
{
    if (!count)
        return;
    for (; splitter->newlines; splitter->newlines--)
        str_append(reasoning, "\n", 1);
    str_append(reasoning, bytes, count);
    splitter->begun = true;
}

/* The answer has no reasoning: gives all that was held. */
static void give_up(struct reasoning_splitter *splitter, struct str *content)
{
    str_append(content, splitter->blank, splitter->blanks);
    str_append(content, splitter->tags.begin, splitter->matched);
    splitter->blanks = splitter->matched = 0;
    splitter->state = REASONING_CONTENT;
}

static void take_before(struct reasoning_splitter *splitter, char byte, struct str *content)
{
    const char *tag = splitter->tags.begin;
    bool blank = byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
    if (blank && !splitter->matched && splitter->blanks < REASONING_BLANKS) {
        splitter->blank[splitter->blanks++] = byte;
    } else if (byte == tag[splitter->matched]) {
        splitter->matched++;
    } else {
        give_up(splitter, content);
        str_append(content, &byte, 1);
    }
    if (splitter->matched < strlen(tag))
        return;
    splitter->blanks = splitter->matched = 0;
    splitter->reasoned = true;
    splitter->state = REASONING_INSIDE;
}

static void take_inside(struct reasoning_splitter *splitter, char byte, struct str *reasoning)
{
    const char *tag = splitter->tags.end;
    uint8_t held = splitter->matched, matched = advance(tag, held, byte);
    splitter->matched = matched;
    if (!tag[matched]) {
        splitter->matched = splitter->newlines = 0;
        splitter->state = REASONING_BEHIND;
    } else if (matched) { /* the bytes before those that still match are text */
        give(splitter, tag, held + 1u - matched, reasoning);
    } else {
        give(splitter, tag, held, reasoning);
        if (byte != '\n')
            give(splitter, &byte, 1, reasoning);
        else if (splitter->newlines == REASONING_NEWLINES)
            str_append(reasoning, "\n", 1);
        else
            splitter->newlines += splitter->begun;
    }
}

/* The begin tag at the start of an answer that begins inside is dropped. */
static void take_repeated(struct reasoning_splitter *splitter, char byte, struct str *reasoning)
{
    const char *tag = splitter->tags.begin;
    if (byte == '\n' && !splitter->repeated)
        return;
    if (byte == tag[splitter->repeated]) {
        splitter->repeated++;
        splitter->may_repeat = tag[splitter->repeated] != 0;
        return;
    }
    splitter->may_repeat = false;
    for (uint8_t i = 0; i < splitter->repeated; i++)
        take_inside(splitter, tag[i], reasoning);
    take_inside(splitter, byte, reasoning);
}

void reasoning_splitter_push(struct reasoning_splitter *splitter, const char *text, size_t length,
                             struct str *reasoning, struct str *content)
{
    for (size_t i = 0; i < length; i++) {
        if (splitter->state == REASONING_BEHIND &&
            (text[i] != '\n' || splitter->behind++ == REASONING_NEWLINES_BEHIND))
            splitter->state = REASONING_CONTENT;
        if (splitter->state == REASONING_CONTENT) {
            str_append(content, text + i, length - i);
            return;
        }
        if (splitter->state == REASONING_BEFORE)
            take_before(splitter, text[i], content);
        else if (splitter->state == REASONING_INSIDE && splitter->may_repeat)
            take_repeated(splitter, text[i], reasoning);
        else if (splitter->state == REASONING_INSIDE)
            take_inside(splitter, text[i], reasoning);
    }
}

void reasoning_splitter_end(struct reasoning_splitter *splitter, struct str *reasoning,
                            struct str *content)
{
    if (splitter->state == REASONING_BEFORE)
        give_up(splitter, content);
    if (splitter->state == REASONING_INSIDE && splitter->may_repeat)
        give(splitter, splitter->tags.begin, splitter->repeated, reasoning);
    if (splitter->state == REASONING_INSIDE)
        give(splitter, splitter->tags.end, splitter->matched, reasoning);
    for (; splitter->newlines; splitter->newlines--)
        str_append(reasoning, "\n", 1);
    splitter->matched = splitter->repeated = 0;
}
