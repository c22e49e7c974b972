#include "router/doors/openai/openai_answer.h"
#include "router/doors/openai/openai_call.h"

#include <stdlib.h>
#include <string.h>

/* News of a choice in one turn. */
struct news {
    struct text text, reasoning;
    bool reasons; /* the answer is still in its reasoning */
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

static void give_text(struct openai_call_choice *choice, struct text text)
{
    struct tool_event event = {.kind = TOOL_TEXT, .text = text.bytes, .length = text.length};
    if (choice->call->has_parser)
        tool_parser_push(&choice->parser, text.bytes, text.length);
    else if (text.length)
        openai_call_choice_event(choice, &event);
}

/* Adds text and its tokens in one chunk. Tokens have a chunk of their own where text is held
 * back for tool calls. Reasoning goes before text, in a chunk of its own. */
static void give_chunk(struct openai_call_choice *choice, const struct news *news)
{
    static const struct text none = {"", 0};
    const struct openai_call *call = choice->call;
    bool ids = call->answer.token_ids && (news->ids.count || !choice->whole.choice.begun);
    struct text text = call->has_parser ? none : news->text;
    struct text reasoning = call->answer.reasoning ? news->reasoning : none;
    if (reasoning.length && news->text.length) {
        add_chunk(choice, (struct openai_piece){.text = reasoning.bytes,
                                                .length = reasoning.length,
                                                .reasoning = true});
        reasoning = none;
    }
    if (call->has_parser)
        give_text(choice, news->text);
    if (!text.length && !reasoning.length && !news->token_count && !ids)
        return;
    bool reasons = reasoning.length || (call->answer.reasoning && news->reasons && !text.length);
    text = reasons ? reasoning : text;
    add_chunk(choice, (struct openai_piece){.text = text.bytes,
                                            .length = text.length,
                                            .reasoning = reasons,
                                            .tokens = news->tokens,
                                            .token_count = news->token_count,
                                            .ids = news->ids});
}

static void note_usage(struct openai_call_choice *choice, const struct request *request)
{
    const struct call *call = request->call;
    choice->prompt = (struct openai_token_ids){call->prompt, call->prompt_count};
    choice->usage = (struct openai_usage){.prompt_tokens = call->prompt_count,
                                          .completion_tokens = request->emitted_count,
                                          .cached_tokens = call->cached_tokens,
                                          .reasoning_tokens = request->out.reasoning_tokens};
}

/* --- streams --- */

/* Adds the prompt's text, once. In the first choice the logprobs of its first token come with it;
 * those of the other tokens come by themselves. */
static void give_echo(struct openai_call_choice *choice, const struct request *request)
{
    const struct call *call = request->call;
    if (choice->echoed || !call->prompt_echo.echo)
        return;
    choice->echoed = true;
    struct text text = {call->prompt_echo.text.data, call->prompt_echo.text.length};
    bool told = choice->call->answer.logprobs && !request->choice;
    struct openai_token *first =
        told ? token_texts_make(request->out.tokenizer, call->prompt, NULL, 1) : NULL;
    struct news news = {.text = text, .tokens = first, .token_count = first ? 1 : 0};
    give_chunk(choice, &news);
    free(first);
    if (!told)
        choice->whole.choice.characters += openai_characters(text.bytes, text.length);
}

void openai_call_choice_prompt_logprobs(struct openai_call_choice *choice, const struct call *call,
                                        uint32_t first, const struct token_logprobs *logprobs,
                                        uint32_t count)
{
    const struct request *request = &call->choices[0];
    note_usage(choice, request);
    give_echo(choice, request);
    struct openai_token *tokens =
        token_texts_make(request->out.tokenizer, call->prompt + first, logprobs, count);
    struct news news = {.text = {"", 0}, .tokens = tokens, .token_count = tokens ? count : 0};
    give_chunk(choice, &news);
    free(tokens);
}

/* Counts the tokens that are shown: not the one that ended the answer, which is no text. */
static size_t shown_tokens(const struct stream_delta *taken, enum finish_reason finish)
{
    bool ends = finish == FINISH_EOS || finish == FINISH_STOP_TOKEN;
    return taken->id_count - (ends && taken->id_count);
}

static void give_taken(struct openai_call_choice *choice, const struct request *request,
                       const struct stream_delta *taken, enum finish_reason finish)
{
    size_t count = choice->call->answer.logprobs ? shown_tokens(taken, finish) : 0;
    struct openai_token *tokens =
        token_texts_make(request->out.tokenizer, taken->ids, taken->logprobs, count);
    struct news news = {.text = taken->text,
                        .reasoning = taken->reasoning,
                        .reasons = request->out.splitter.state == REASONING_INSIDE,
                        .tokens = tokens,
                        .token_count = tokens ? count : 0,
                        .ids = {taken->ids, taken->id_count}};
    give_echo(choice, request);
    give_chunk(choice, &news);
    free(tokens);
}

void openai_call_choice_delta(struct openai_call_choice *choice, const struct request *request,
                              const struct stream_delta *taken)
{
    note_usage(choice, request);
    give_taken(choice, request, taken, FINISH_NONE);
}

/* --- whole objects --- */

/* Keeps the logprobs of the answer. With an echo those of the prompt come first; its first token
 * has none. */
static enum status keep_logprobs(struct openai_call_choice *choice, const struct request *request,
                                 const struct stream_delta *taken, enum finish_reason finish)
{
    const struct prompt_echo *prompt = &request->call->prompt_echo;
    size_t count = shown_tokens(taken, finish),
           before = prompt->echo ? request->call->prompt_count : 0;
    uint32_t *ids = malloc((before + count + 1) * sizeof *ids);
    struct token_logprobs *logprobs = calloc(before + count + 1, sizeof *logprobs);
    struct openai_token *tokens = NULL;
    if (ids && logprobs) {
        if (before)
            memcpy(ids, request->call->prompt, before * sizeof *ids);
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

static enum status end_whole(struct openai_call_choice *choice, const struct request *request,
                             const struct stream_delta *taken)
{
    const struct prompt_echo *echo = &request->call->prompt_echo;
    if (echo->echo)
        give_text(choice, (struct text){echo->text.data, echo->text.length});
    if (choice->call->answer.reasoning)
        str_append(&choice->whole.reasoning, taken->reasoning.bytes, taken->reasoning.length);
    give_text(choice, taken->text);
    if (choice->call->has_parser)
        tool_parser_end(&choice->parser, openai_finish_cut(request->finish));
    choice->whole.finish = request->finish;
    if (choice->call->answer.logprobs)
        TRY(keep_logprobs(choice, request, taken, request->finish));
    if (choice->call->answer.token_ids)
        openai_whole_ids(&choice->whole, &choice->prompt,
                         &(struct openai_token_ids){taken->ids, taken->id_count});
    return openai_whole_truncated(&choice->whole) ? STATUS_LIMIT : STATUS_OK;
}

enum status openai_call_choice_end(struct openai_call_choice *choice, const struct request *request,
                                   const struct stream_delta *taken)
{
    struct openai_call *call = choice->call;
    note_usage(choice, request);
    choice->whole.choice.reasoned = request->out.reasoning_tokens > 0;
    if (!call->stream)
        return end_whole(choice, request, taken);
    give_taken(choice, request, taken, request->finish);
    if (call->has_parser)
        tool_parser_end(&choice->parser, openai_finish_cut(request->finish));
    openai_chunk_end(&call->frames, &call->answer, &choice->whole.choice, request->finish,
                     &choice->usage);
    return STATUS_OK;
}
