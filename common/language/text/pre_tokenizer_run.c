#include "common/language/text/pre_tokenizer.h"

#include "common/base/assert.h"
#include "common/base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Each step hands its pieces straight to the next one, so the recursion is as deep as there are
 * steps. */
struct run {
    const struct pre_tokenizer *pre_tokenizer;
    struct regex_scratch *scratch;
    const struct word_sink *sink;
    struct error *err;
};

static enum status run_stage(const struct run *run, size_t nth, struct piece piece);

/* The pieces of one split: matches and what is between them arrive in order. */
struct splitter {
    const struct run *run;
    size_t nth;
    struct piece whole;
    enum split_behavior behavior;
    bool waits; /* [start, end) isn't handed on yet */
    bool last_matched;
    size_t start, end;
};

static enum status hand_on(const struct splitter *splitter, size_t start, size_t end)
{
    if (start == end)
        return STATUS_OK;
    return run_stage(splitter->run, splitter->nth + 1, piece_part(splitter->whole, start, end));
}

static enum status hand_on_waiting(struct splitter *splitter)
{
    bool waits = splitter->waits;
    splitter->waits = false;
    return waits ? hand_on(splitter, splitter->start, splitter->end) : STATUS_OK;
}

/* One more: it joins the one that waits, or sends that on and waits itself. */
static enum status join_or_wait(struct splitter *splitter, size_t start, size_t end, bool join)
{
    if (!join || !splitter->waits) {
        TRY(hand_on_waiting(splitter));
        splitter->start = start;
        splitter->waits = true;
    }
    splitter->end = end;
    return STATUS_OK;
}

static enum status take_segment(struct splitter *splitter, size_t start, size_t end, bool matched)
{
    bool last_matched = splitter->last_matched;
    splitter->last_matched = matched;
    switch (splitter->behavior) {
    case SPLIT_ISOLATED: return hand_on(splitter, start, end);
    case SPLIT_REMOVED: return matched ? STATUS_OK : hand_on(splitter, start, end);
    case SPLIT_CONTIGUOUS: return join_or_wait(splitter, start, end, matched == last_matched);
    case SPLIT_MERGED_WITH_PREVIOUS:
        return join_or_wait(splitter, start, end, matched && !last_matched);
    case SPLIT_MERGED_WITH_NEXT:
        TRY(join_or_wait(splitter, start, end, !matched && last_matched));
        return matched ? STATUS_OK : hand_on_waiting(splitter);
    }
    ASSERT(false);
}

static enum status split(const struct run *run, size_t nth, struct piece piece)
{
    const struct pre_tokenizer_stage *stage = &run->pre_tokenizer->stages[nth];
    struct splitter splitter = {
        .run = run, .nth = nth, .whole = piece, .behavior = stage->behavior};
    struct pattern_search search = {
        .scratch = run->scratch, .text = piece.text, .length = piece.length};
    struct regex_match match = {.found = true};
    for (size_t at = 0; match.found; at = match.end) {
        TRY(pattern_next(&stage->pattern, &search, &match, run->err));
        if (match.start > at)
            TRY(take_segment(&splitter, at, match.start, stage->invert));
        if (match.found)
            TRY(take_segment(&splitter, match.start, match.end, !stage->invert));
    }
    return hand_on_waiting(&splitter);
}

static enum status put_space(const struct run *run, size_t nth, struct piece piece)
{
    if (piece.text[0] == ' ')
        return run_stage(run, nth + 1, piece);
    char *spaced = malloc(piece.length + 1);
    ASSERT(spaced);
    spaced[0] = ' ';
    memcpy(spaced + 1, piece.text, piece.length);
    struct piece made = {spaced, piece.length + 1, piece.head ? piece.head + 1 : 0};
    enum status status = run_stage(run, nth + 1, made);
    free(spaced);
    return status;
}

static bool starts_with(struct piece piece, const struct metaspace *metaspace)
{
    return piece.length >= metaspace->length &&
           memcmp(piece.text, metaspace->replacement, metaspace->length) == 0;
}

/* Cut in front of each replacement: MergedWithNext. */
static enum status split_metaspace(const struct run *run, size_t nth,
                                   const struct metaspace *metaspace, struct piece piece)
{
    while (piece.length) {
        size_t from = starts_with(piece, metaspace) ? metaspace->length : 0;
        const char *next = memmem(piece.text + from, piece.length - from, metaspace->replacement,
                                  metaspace->length);
        size_t length = next ? (size_t)(next - piece.text) : piece.length;
        TRY(run_stage(run, nth + 1, piece_part(piece, 0, length)));
        piece = piece_part(piece, length, piece.length);
    }
    return STATUS_OK;
}

static enum status apply_metaspace(const struct run *run, size_t nth, struct piece piece)
{
    const struct metaspace *metaspace = &run->pre_tokenizer->stages[nth].metaspace;
    size_t spaces = 0, length = 0, head = 0;
    for (size_t i = 0; i < piece.length; i++)
        spaces += piece.text[i] == ' ';
    char *text = malloc(piece.length + (spaces + 1) * metaspace->length);
    ASSERT(text);
    bool prepend = metaspace->prepend == PREPEND_ALWAYS ||
                   (metaspace->prepend == PREPEND_FIRST && piece.head > 0);
    if (prepend && piece.text[0] != ' ' && !starts_with(piece, metaspace)) {
        memcpy(text, metaspace->replacement, metaspace->length);
        length = metaspace->length;
        head = piece.head ? length : 0;
    }
    for (size_t i = 0; i < piece.length; i++) {
        size_t width = piece.text[i] == ' ' ? metaspace->length : 1;
        head += i < piece.head ? width : 0;
        if (piece.text[i] != ' ') {
            text[length++] = piece.text[i];
            continue;
        }
        memcpy(text + length, metaspace->replacement, metaspace->length);
        length += metaspace->length;
    }
    struct piece made = {text, length, head};
    enum status status = metaspace->split ? split_metaspace(run, nth, metaspace, made)
                                          : run_stage(run, nth + 1, made);
    free(text);
    return status;
}

static enum status run_stage(const struct run *run, size_t nth, struct piece piece)
{
    if (nth == run->pre_tokenizer->stage_count)
        return run->sink->take(run->sink->context, piece.text, piece.length, run->err);
    switch (run->pre_tokenizer->stages[nth].kind) {
    case PRE_TOKENIZER_SPLIT: return split(run, nth, piece);
    case PRE_TOKENIZER_METASPACE: return apply_metaspace(run, nth, piece);
    case PRE_TOKENIZER_SPACE: return put_space(run, nth, piece);
    }
    ASSERT(false);
}

enum status pre_tokenizer_run(const struct pre_tokenizer *pre_tokenizer,
                              struct regex_scratch *scratch, struct piece piece,
                              const struct word_sink *sink, struct error *err)
{
    struct run run = {pre_tokenizer, scratch, sink, err};
    return piece.length ? run_stage(&run, 0, piece) : STATUS_OK;
}
