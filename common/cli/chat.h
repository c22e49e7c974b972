/* A conversation with a model: what is said, what the next request is made of, and the /commands.
 * PURE.
 *
 * The transcript is plain text, and nothing but what is seen: each line of the user and its line
 * feed, and behind it the model's answer, as the model gave it. Without a chat template the whole
 * of it is the prompt of the next turn; with one (chat_render.h) its turns are messages. */
#ifndef BATON_CLI_CHAT_H
#define BATON_CLI_CHAT_H

#include "common/base/arena.h"
#include "common/base/str.h"
#include "proto/baton.pb-c.h"

#include <stdbool.h>

#define CHAT_MAX_TRANSCRIPT_BYTES (4u << 20) /* as the server takes text */
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

/* Of the transcript. */
struct chat_turn {
    size_t begin, line_bytes; /* the user's text, before its line feed */
};

struct chat {
    bool templated;    /* set by the owner, before the first line */
    struct str system; /* text; only with a template */
    struct str transcript;
    size_t turn_count;
    struct chat_turn turns[CHAT_MAX_TURNS];
    bool given[CHAT_OPTIONS]; /* else: the server's default */
    double values[CHAT_OPTIONS];
    size_t stop_count;
    char stops[CHAT_MAX_STOPS][CHAT_MAX_STOP_BYTES + 1];
    char model[128]; /* "": the only one */
};

enum chat_act {
    CHAT_GO_ON, /* what there is to say was said */
    CHAT_ASK,   /* the transcript wants an answer */
    CHAT_QUIT
};

void chat_init(struct chat *chat);
void chat_deinit(struct chat *chat);

/* An option by its name as in /temperature. STATUS_INVALID: with a sentence, and nothing has
 * changed. */
enum status chat_set(struct chat *chat, enum chat_option option, double value,
                     struct error *err) WARN_UNUSED;
enum status chat_add_stop(struct chat *chat, const char *text, struct error *err) WARN_UNUSED;

/* What the model is told before all turns; "": nothing. STATUS_INVALID: it is too long, or there is
 * no template. */
enum status chat_set_system(struct chat *chat, const char *text, struct error *err) WARN_UNUSED;

/* What the user says: a line, without its line feed, or several, with line feeds between them.
 * Appends what is to be said to `say`, whole lines. */
enum chat_act chat_take_line(struct chat *chat, const char *line, struct str *say);
/* The answer to CHAT_ASK, or the part of it that came. */
void chat_take_answer(struct chat *chat, const char *text, size_t length);
/* There was none: the turn is taken back. */
void chat_take_failure(struct chat *chat);

/* {"messages": [...]}: the system's text, and the turns; of each answer without the blanks around
 * it. The last turn is the user's, where an answer is due. */
void chat_messages(const struct chat *chat, struct str *json);

/* The next request; its memory is the arena's, the chat's and that of `ids`: the prompt, or NULL:
 * the transcript is. */
Baton__V1__GenerateRequest *chat_request(struct chat *chat, uint32_t *ids, size_t id_count,
                                         struct arena *arena);

#endif
