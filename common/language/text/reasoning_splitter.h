/* Splits an answer, as it comes, into reasoning and content: "<think>\nSo ...\n</think>\n\nYes."
 * Both texts are the same, however the answer is cut. Pieces of whole characters are handed on as
 * whole characters.
 *
 * Reasoning comes first, once, and ends with the first end tag. A model may repeat a begin tag that
 * the prompt has written. The tags belong to neither text, nor do newlines beside them: behind the
 * begin tag, before the end tag, and the first REASONING_NEWLINES_BEHIND behind it. A further
 * newline there is content. A constraint behind the reasoning follows the same rule (constraint.h).
 * A begin tag with anything but white space before it is content. An answer that ends in its
 * reasoning has no content.
 *
 * Held back are bytes that may become a tag, white space before the begin tag, and up to
 * REASONING_NEWLINES newlines that may come before the end tag. A plain value; pure; one thread. */
#ifndef BATON_LANGUAGE_TEXT_REASONING_SPLITTER_H
#define BATON_LANGUAGE_TEXT_REASONING_SPLITTER_H

#include "common/base/str.h"

#define REASONING_TAG_BYTES       32 /* room for a tag */
#define REASONING_NEWLINES        64
#define REASONING_NEWLINES_BEHIND 2  /* dropped behind the end tag; more are content */
#define REASONING_BLANKS          64 /* white space before the begin tag; more is content */

struct reasoning_tags {
    char begin[REASONING_TAG_BYTES], end[REASONING_TAG_BYTES]; /* "": no reasoning comes */
    bool inside; /* the prompt has written the begin tag: the answer begins behind it */
};

enum reasoning_state {
    REASONING_BEFORE,  /* at the answer's start: the begin tag may come */
    REASONING_INSIDE,  /* the begin tag was complete, or the answer began inside */
    REASONING_BEHIND,  /* the end tag was complete: the first newlines are dropped */
    REASONING_CONTENT, /* another character or newline came; or no reasoning comes at all */
};

struct reasoning_splitter {
    struct reasoning_tags tags;
    enum reasoning_state state;
    bool reasoned;    /* INSIDE was reached */
    bool begun;       /* reasoning has come, so newlines count */
    bool may_repeat;  /* the answer began inside: its first text may be the begin tag once more */
    uint8_t matched;  /* bytes of the tag that is looked for */
    uint8_t repeated; /* bytes of the repeated begin tag */
    uint8_t newlines; /* in INSIDE: newlines that are held back */
    uint8_t behind;   /* in BEHIND: newlines that were dropped */
    uint8_t blanks;   /* white space before a begin tag, and its bytes: */
    char blank[REASONING_BLANKS];
};

void reasoning_splitter_init(struct reasoning_splitter *splitter,
                             const struct reasoning_tags *tags);
/* Appends what is decided. */
void reasoning_splitter_push(struct reasoning_splitter *splitter, const char *text, size_t length,
                             struct str *reasoning, struct str *content);
/* The answer ends: appends what is held back. */
void reasoning_splitter_end(struct reasoning_splitter *splitter, struct str *reasoning,
                            struct str *content);

#endif
