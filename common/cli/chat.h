/* A conversation with a model: its transcript, the next request, and the /commands. PURE.
 *
 * The transcript is plain text, as the user sees it: each line of the user with its line feed, then
 * the model's answer, unchanged. Without a chat template the whole transcript is the prompt of the
 * next turn. With one (chat_render.h) its turns become messages. */
#ifndef BATON_CLI_CHAT_H
#define BATON_CLI_CHAT_H

#include "common/base/arena.h"
#include "common/base/str.h"
#include "proto/baton.pb-c.h"

#include <stdbool.h>

#define CHAT_MAX_TRANSCRIPT_BYTES (4u << 20) /* the server's limit for text */
#define CHAT_MAX_TURNS            1000
#define CHAT_MAX_SYSTEM_BYTES     16384
#define CHAT_MAX_STOPS            4
#define CHAT_MAX_STOP_BYTES       64

enum chat_option {
    CHAT_TEMPERATURE,
    CHAT_TOP_P,
    CHAT_TOP_K,
    CHAT_MIN_P,
    CHAT_SEED,
    CHAT_MAX_TOKENS,
    CHAT_OPTIONS
};

struct chat_turn {
    size_t begin, line_bytes; /* the user's text in the transcript, without its line feed */
};

struct chat {
    bool templated;    /* set by the owner before the first line */
    struct str system; /* text; only with a template */
    struct str transcript;
    size_t turn_count;
    struct chat_turn turns[CHAT_MAX_TURNS];
    bool given[CHAT_OPTIONS]; /* false: the server's default */
    double values[CHAT_OPTIONS];
    size_t stop_count;
    char stops[CHAT_MAX_STOPS][CHAT_MAX_STOP_BYTES + 1];
    char model[128];    /* "": the only one */
    char slo_class[64]; /* "": the default class */
};

enum chat_act {
    CHAT_GO_ON, /* `say` has the whole reaction */
    CHAT_ASK,   /* the transcript needs an answer */
    CHAT_QUIT
};

void chat_init(struct chat *chat);
void chat_deinit(struct chat *chat);

/* Sets an option, by the rules of its /command. STATUS_INVALID: nothing has changed. */
enum status chat_set(struct chat *chat, enum chat_option option, double value,
                     struct error *err) WARN_UNUSED;
enum status chat_add_stop(struct chat *chat, const char *text, struct error *err) WARN_UNUSED;

/* Sets the system text, which stands before all turns. "": none. STATUS_INVALID: it is too long, or
 * there is no template. */
enum status chat_set_system(struct chat *chat, const char *text, struct error *err) WARN_UNUSED;

/* Takes a line of the user without its line feed, or several with line feeds between them. Appends
 * whole lines to show to `say`. */
enum chat_act chat_take_line(struct chat *chat, const char *line, struct str *say);
/* Takes the answer to CHAT_ASK, or the part of it that came. */
void chat_take_answer(struct chat *chat, const char *text, size_t length);
/* No answer came: takes the turn back. */
void chat_take_failure(struct chat *chat);

/* Appends {"messages": [...]}: the system text and the turns. Answers have no blanks around them.
 * The last turn is the user's, if an answer is due. */
void chat_messages(const struct chat *chat, struct str *json);

/* Returns the next request. It points into the arena, the chat and `ids`, the prompt. NULL: the
 * transcript is the prompt. */
Baton__V1__GenerateRequest *chat_request(struct chat *chat, uint32_t *ids, size_t id_count,
                                         struct arena *arena);

#endif
