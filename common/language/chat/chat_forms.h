/* The forms in which a chat template writes an assistant's calls of tools and its reasoning. They
 * are found by rendering conversations of our own, and looking at the text around what was put in.
 * PURE. */
#ifndef BATON_LANGUAGE_CHAT_CHAT_FORMS_H
#define BATON_LANGUAGE_CHAT_CHAT_FORMS_H

#include <stdbool.h>
#include <stddef.h>

struct chat_template;
struct chat_prompt;

/* The call in our conversations: CHAT_PROBE_NAME with {CHAT_PROBE_KEY: CHAT_PROBE_VALUE}. */
#define CHAT_PROBE_NAME  "zqname"
#define CHAT_PROBE_KEY   "zqkey"
#define CHAT_PROBE_VALUE "zqvalue"

#define CHAT_CALLS_BYTES 1024 /* room for the text of a call */
#define CHAT_TAG_BYTES   32   /* room for a tag around reasoning */

struct chat_forms {
    /* The assistant's message that makes our call, perhaps with some of what comes after it. "":
     * the template writes no calls. */
    char calls[CHAT_CALLS_BYTES];
    bool text_arguments; /* the template takes a call's arguments only as a string */
    /* The tags around reasoning, "<think>" and "</think>". "": the template knows none. */
    char reasoning_begin[CHAT_TAG_BYTES], reasoning_end[CHAT_TAG_BYTES];
};

/* Renders a few conversations. Any failure of the template counts as a form that it doesn't
 * write. */
void chat_forms_find(const struct chat_template *chat, struct chat_forms *forms);

/* The place of an answer in its reasoning when it begins. */
enum chat_reasoning {
    CHAT_REASONING_NONE,   /* none can come: the template knows none, or the prompt has ended it */
    CHAT_REASONING_MAYBE,  /* the answer may begin with the tag */
    CHAT_REASONING_INSIDE, /* the prompt has written the tag: the answer begins inside */
};
/* `continued`: the prompt ends with the last message's text (continue_final_message). A tag that
 * another message spells out doesn't count. */
enum chat_reasoning chat_prompt_reasoning(const struct chat_forms *forms,
                                          const struct chat_prompt *prompt, bool continued);

#endif
