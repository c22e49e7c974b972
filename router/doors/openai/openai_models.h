/* GET /v1/models and /v1/models/{id}. PURE. */
#ifndef BATON_ROUTER_DOORS_OPENAI_OPENAI_MODELS_H
#define BATON_ROUTER_DOORS_OPENAI_OPENAI_MODELS_H

#include "common/base/str.h"
#include "router/request_parse.h"

void openai_model_json(struct str *out, const struct request_model *model, uint64_t created_s);
void openai_models_json(struct str *out, const struct request_model *const *models, size_t count,
                        uint64_t created_s);

#endif
