#include "router/doors/openai/openai_call_choice.h"

#include "router/doors/openai/openai_answer.h"

#include <stdlib.h>
#include <string.h>

/* One turn's news of a choice. */
struct news {
    const char *text;
    const struct openai_token *tokens;
    size_t token_count;
    struct openai_token_ids ids;
};

static void add_chunk(struct openai_call_choice *choice, struct openai_piece piece)
{
    struct openai_call *call = choice->call;
    piece.usage = choice->usage;
    piece.prompt = choice->prompt;
    openai_chunk(&call->frames, &call->answer, &choice->whole.choice, &piece);
}

void openai_call_choice_event(void *context, const struct tool_event *event)
{
    struct openai_call_choice *choice = context;
    struct openai_call *call = choice->call;
    if (call->one_tool_call && event->kind != TOOL_TEXT && event->index)
        return;
    if (!call->stream)
        openai_whole_event(&choice->whole, &call->answer, event);
    else if (event->kind == TOOL_TEXT)
        add_chunk(choice, (struct openai_piece){.text = event->text, .length = event->length});
    else
        add_chunk(choice, (struct openai_piece){.event = event});
}

static void give_text(struct openai_call_choice *choice, const char *text)
{
    struct tool_event event = {.kind = TOOL_TEXT, .text = text, .length = strlen(text)};
    if (choice->call->has_parser)
        tool_parser_push(&choice->parser, text, event.length);
    else if (event.length)
        openai_call_choice_event(choice, &event);
}

/* Text and its tokens in one chunk; where text is held back for tool calls,
 * tokens have a chunk of their own. */
static void give_chunk(struct openai_call_choice *choice, const struct news *news)
{
    size_t length = choice->call->has_parser ? 0 : strlen(news->text);
    bool ids = choice->call->answer.token_ids && (news->ids.count || !choice->whole.choice.begun);
    if (choice->call->has_parser)
        give_text(choice, news->text);
    if (!length && !news->token_count && !ids)
        return;
    add_chunk(choice, (struct openai_piece){.text = length ? news->text : "",
                                            .length = length,
                                            .tokens = news->tokens,
                                            .token_count = news->token_count,
                                            .ids = news->ids});
}

static void note_request(struct openai_call_choice *choice, const struct request *request)
{
    choice->prompt = (struct openai_token_ids){request->prompt, request->prompt_count};
    choice->usage = (struct openai_usage){request->prompt_count, request->emitted_count};
}

/* --- streams --- */

/* The prompt's text, once, with its first token: the others come with their
 * logprobs. */
static void give_echo(struct openai_call_choice *choice, struct request *request)
{
    if (choice->echoed || !request->first->prompt_echo.echo)
        return;
    choice->echoed = true;
    const char *text = request->first->prompt_echo.text.data;
    bool told = choice->call->answer.logprobs && request == request->first;
    struct openai_token *first =
        told ? token_texts_make(request->out.tokenizer, request->prompt, NULL, 1) : NULL;
    struct news news = {.text = text, .tokens = first, .token_count = first ? 1 : 0};
    give_chunk(choice, &news);
    free(first);
    if (!told) /* the prompt's tokens are told of the first choice alone */
        choice->whole.choice.characters += openai_characters(text, strlen(text));
}

void openai_call_choice_prompt_logprobs(struct openai_call_choice *choice, struct request *request,
                                        uint32_t first, const struct token_logprobs *logprobs,
                                        uint32_t count)
{
    note_request(choice, request);
    give_echo(choice, request);
    struct openai_token *tokens =
        token_texts_make(request->out.tokenizer, request->prompt + first, logprobs, count);
    struct news news = {.text = "", .tokens = tokens, .token_count = tokens ? count : 0};
    give_chunk(choice, &news);
    free(tokens);
}

/* What ended the answer is no text, and so no token of it. */
static size_t shown_tokens(const struct stream_delta *taken, enum finish_reason finish)
{
    bool ends = finish == FINISH_EOS || finish == FINISH_STOP_TOKEN;
    return taken->id_count - (ends && taken->id_count);
}

static void give_taken(struct openai_call_choice *choice, struct request *request,
                       const struct stream_delta *taken, enum finish_reason finish)
{
    size_t count = choice->call->answer.logprobs ? shown_tokens(taken, finish) : 0;
    struct openai_token *tokens =
        token_texts_make(request->out.tokenizer, taken->ids, taken->logprobs, count);
    struct news news = {taken->text, tokens, tokens ? count : 0, {taken->ids, taken->id_count}};
    give_echo(choice, request);
    give_chunk(choice, &news);
    free(tokens);
}

void openai_call_choice_delta(struct openai_call_choice *choice, struct request *request,
                              const struct stream_delta *taken)
{
    note_request(choice, request);
    give_taken(choice, request, taken, FINISH_NONE);
}

static void end_stream(struct openai_call_choice *choice, struct request *request,
                       const struct stream_delta *rest, enum finish_reason finish)
{
    struct openai_call *call = choice->call;
    give_taken(choice, request, rest, finish);
    if (call->has_parser)
        tool_parser_end(&choice->parser, openai_finish_cut(finish));
    openai_chunk_end(&call->frames, &call->answer, &choice->whole.choice, finish, &choice->usage);
}

/* --- whole objects --- */

/* Of an echo the prompt's tokens come first, of which the first has no logprob.
 */
static enum status keep_logprobs(struct openai_call_choice *choice, const struct request *request,
                                 const struct stream_delta *taken, enum finish_reason finish)
{
    const struct prompt_echo *prompt = &request->first->prompt_echo;
    size_t count = shown_tokens(taken, finish), before = prompt->echo ? request->prompt_count : 0;
    uint32_t *ids = malloc((before + count + 1) * sizeof *ids);
    struct token_logprobs *logprobs = calloc(before + count + 1, sizeof *logprobs);
    struct openai_token *tokens = NULL;
    if (ids && logprobs) {
        if (before)
            memcpy(ids, request->prompt, before * sizeof *ids);
        if (before > 1)
            memcpy(logprobs + 1, prompt->kept, (before - 1) * sizeof *logprobs);
        if (count) {
            memcpy(ids + before, taken->ids, count * sizeof *ids);
            memcpy(logprobs + before, taken->logprobs, count * sizeof *logprobs);
        }
        tokens = token_texts_make(request->out.tokenizer, ids, logprobs, before + count);
    }
    bool fine = tokens || !(before + count);
    if (fine)
        openai_whole_tokens(&choice->whole, &choice->call->answer, tokens, before + count);
    free(tokens);
    free(logprobs);
    free(ids);
    return fine ? STATUS_OK : STATUS_LIMIT;
}

static enum status end_whole(struct openai_call_choice *choice, struct request *request,
                             const struct stream_delta *taken, enum finish_reason finish)
{
    if (request->first->prompt_echo.echo)
        give_text(choice, request->first->prompt_echo.text.data);
    give_text(choice, taken->text);
    if (choice->call->has_parser)
        tool_parser_end(&choice->parser, openai_finish_cut(finish));
    choice->whole.finish = finish;
    if (choice->call->answer.logprobs)
        TRY(keep_logprobs(choice, request, taken, finish));
    if (choice->call->answer.token_ids)
        openai_whole_ids(&choice->whole, &choice->prompt,
                         &(struct openai_token_ids){taken->ids, taken->id_count});
    return openai_whole_truncated(&choice->whole) ? STATUS_LIMIT : STATUS_OK;
}

/* --- the end of both --- */

enum status openai_call_choice_end(struct openai_call_choice *choice, struct request *request,
                                   const struct stream_delta *taken, enum finish_reason finish)
{
    note_request(choice, request);
    if (!choice->call->stream)
        return end_whole(choice, request, taken, finish);
    end_stream(choice, request, taken, finish);
    return STATUS_OK;
}
