#include "common/base/assert.h"
#include "common/cli/chat.h"

#define SET(option, field, type, PRESENCE)                                                         \
    do {                                                                                           \
        if (chat->given[option]) {                                                                 \
            sampling->field##_presence_case = BATON__V1__SAMPLING__##PRESENCE;                     \
            sampling->field = (type)chat->values[option];                                          \
        }                                                                                          \
    } while (0)

static Baton__V1__Sampling *make_sampling(const struct chat *chat, struct arena *arena)
{
    Baton__V1__Sampling *sampling = arena_take(arena, sizeof *sampling);
    ASSERT(sampling);
    baton__v1__sampling__init(sampling);
    SET(CHAT_TEMPERATURE, temperature, float, TEMPERATURE_PRESENCE_TEMPERATURE);
    SET(CHAT_TOP_P, top_p, float, TOP_P_PRESENCE_TOP_P);
    SET(CHAT_TOP_K, top_k, uint32_t, TOP_K_PRESENCE_TOP_K);
    SET(CHAT_MIN_P, min_p, float, MIN_P_PRESENCE_MIN_P);
    SET(CHAT_SEED, seed, uint64_t, SEED_PRESENCE_SEED);
    SET(CHAT_MAX_TOKENS, max_tokens, uint32_t, MAX_TOKENS_PRESENCE_MAX_TOKENS);
    return sampling;
}

static void set_input(Baton__V1__GenerateRequest *request, const struct chat *chat, uint32_t *ids,
                      size_t id_count, struct arena *arena)
{
    if (!ids) {
        request->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TEXT;
        request->text = chat->transcript.data;
        return;
    }
    request->token_ids = arena_take(arena, sizeof *request->token_ids);
    ASSERT(request->token_ids);
    baton__v1__token_ids__init(request->token_ids);
    request->input_case = BATON__V1__GENERATE_REQUEST__INPUT_TOKEN_IDS;
    request->token_ids->ids = ids;
    request->token_ids->n_ids = id_count;
}

Baton__V1__GenerateRequest *chat_request(struct chat *chat, uint32_t *ids, size_t id_count,
                                         struct arena *arena)
{
    Baton__V1__GenerateRequest *request = arena_take(arena, sizeof *request);
    Baton__V1__Stop *stops = arena_take(arena, sizeof *stops);
    Baton__V1__Output *output = arena_take(arena, sizeof *output);
    char **texts = arena_take(arena, CHAT_MAX_STOPS * sizeof *texts);
    ASSERT(request && stops && output && texts);
    baton__v1__generate_request__init(request);
    baton__v1__stop__init(stops);
    baton__v1__output__init(output);
    for (size_t i = 0; i < chat->stop_count; i++)
        texts[i] = chat->stops[i];
    stops->n_strings = chat->stop_count;
    stops->strings = texts;
    output->return_timing_presence_case = BATON__V1__OUTPUT__RETURN_TIMING_PRESENCE_RETURN_TIMING;
    output->return_timing = true;
    request->model = chat->model;
    set_input(request, chat, ids, id_count, arena);
    request->sampling = make_sampling(chat, arena);
    request->stop = stops;
    request->output = output;
    return request;
}
