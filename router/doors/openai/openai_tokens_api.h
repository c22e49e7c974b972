/* The handlers of /tokenize and /detokenize. On HTTP loops. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_TOKENS_API_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_TOKENS_API_H

struct http_exchange;

/* `context`: the api. */
void openai_handle_tokenize(void *context, struct http_exchange *exchange);
void openai_handle_detokenize(void *context, struct http_exchange *exchange);

#endif
