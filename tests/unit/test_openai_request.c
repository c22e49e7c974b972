/* openai_request: clients' bodies and the messages that they become; the traps of other servers,
 * one a row. */
#include "common/base/json/json_quote.h"
#include "common/language/chat/chat_request.h"
#include "proto/proto_text.h"
#include "router/doors/openai/openai_chat.h"
#include "tests/unit/tokenizer_file.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_BYTES (1u << 20)

static void add_sampling(struct str *out, const Baton__V1__Sampling *s)
{
    if (s->temperature_presence_case)
        str_addf(out, " temperature=%g", (double)s->temperature);
    if (s->top_k_presence_case)
        str_addf(out, " top_k=%u", s->top_k);
    if (s->top_p_presence_case)
        str_addf(out, " top_p=%g", (double)s->top_p);
    if (s->min_p_presence_case)
        str_addf(out, " min_p=%g", (double)s->min_p);
    if (s->seed_presence_case)
        str_addf(out, " seed=%" PRIu64, s->seed);
    if (s->max_tokens_presence_case)
        str_addf(out, " max_tokens=%u", s->max_tokens);
    if (s->min_tokens_presence_case)
        str_addf(out, " min_tokens=%u", s->min_tokens);
    if (s->ignore_eos_presence_case)
        str_addf(out, " ignore_eos=%d", s->ignore_eos);
    if (s->presence_penalty_presence_case)
        str_addf(out, " presence=%g", (double)s->presence_penalty);
    if (s->frequency_penalty_presence_case)
        str_addf(out, " frequency=%g", (double)s->frequency_penalty);
    if (s->repetition_penalty_presence_case)
        str_addf(out, " repetition=%g", (double)s->repetition_penalty);
    for (size_t i = 0; i < s->n_logit_bias; i++)
        str_addf(out, " bias(%u)=%g", s->logit_bias[i]->key, (double)s->logit_bias[i]->value);
}

static void add_prompt(struct str *out, const struct openai_prompt *prompt)
{
    if (prompt->text.bytes) {
        str_add(out, " ");
        json_quote(out, prompt->text.bytes, prompt->text.length);
        return;
    }
    str_add(out, " [");
    for (size_t i = 0; i < prompt->id_count; i++)
        str_addf(out, "%s%u", i ? "," : "", prompt->ids[i]);
    str_add(out, "]");
}

static void add_text(struct str *out, const char *before, ProtobufCBinaryData field)
{
    struct str quoted;
    str_init(&quoted, 4096);
    json_quote(&quoted, proto_text(field).bytes, field.len);
    str_add(out, before);
    str_append(out, quoted.data + 1, quoted.length - 2);
    str_deinit(&quoted);
}

static void add_constraint(struct str *out, const struct openai_request *r)
{
    const Baton__V1__Constraint *c = r->message.constraint;
    if (!c)
        return;
    str_addf(out, " %s:", r->constraint_param);
    if (c->kind_case == BATON__V1__CONSTRAINT__KIND_JSON_OBJECT && c->json_object)
        str_add(out, " object");
    if (c->kind_case == BATON__V1__CONSTRAINT__KIND_JSON_SCHEMA)
        str_addf(out, " schema %s", c->json_schema);
    if (c->kind_case == BATON__V1__CONSTRAINT__KIND_REGEX)
        str_addf(out, " regex %s", c->regex);
    if (c->kind_case != BATON__V1__CONSTRAINT__KIND_CHOICE)
        return;
    for (size_t i = 0; i < c->choice->n_texts; i++)
        add_text(out, i ? "|" : " choice ", c->choice->texts[i]);
}

/* Describes the fields that differ from their defaults. */
static void describe(struct str *out, const struct openai_request *r)
{
    const Baton__V1__GenerateRequest *m = &r->message;
    str_addf(out, "model=%s", m->model);
    for (size_t i = 0; r->kind == OPENAI_COMPLETION && i < r->prompt_count; i++)
        add_prompt(out, &r->prompts[i]);
    if (r->kind == OPENAI_CHAT)
        str_addf(out, " messages=%zu%s", json_count(r->messages),
                 r->other_roles ? " other_roles" : "");
    add_sampling(out, &r->sampling);
    for (size_t i = 0; i < r->stop.n_strings; i++)
        add_text(out, " stop=", r->stop.strings[i]);
    for (size_t i = 0; i < r->stop.n_token_ids; i++)
        str_addf(out, " stop_id=%u", r->stop.token_ids[i]);
    if (r->choices > 1)
        str_addf(out, " n=%u", r->choices);
    if (m->priority_presence_case)
        str_addf(out, " priority=%d", (int)m->priority);
    if (*m->slo_class)
        str_addf(out, " slo_class=%s", m->slo_class);
    if (m->slo_objective)
        str_addf(out, " objective=%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64,
                 m->slo_objective->ttft_us, m->slo_objective->tpot_us, m->slo_objective->itl_us,
                 m->slo_objective->e2e_us);
    if (r->logprobs)
        str_addf(out, " logprobs=%u", r->output.logprobs);
    if (r->return_token_ids)
        str_addf(out, " ids=%d", r->output.return_token_ids);
    if (r->output.prompt_logprobs_presence_case)
        str_addf(out, " prompt_logprobs=%u", r->output.prompt_logprobs);
    if (r->output.skip_special_tokens_presence_case)
        str_addf(out, " skip_special=%d", r->output.skip_special_tokens);
    if (m->add_special_tokens != (r->kind == OPENAI_COMPLETION))
        str_addf(out, " add_special=%d", m->add_special_tokens);
    str_addf(out, "%s%s%s%s", r->echo ? " echo" : "", r->stream ? " stream" : "",
             r->include_usage ? " usage" : "", r->continuous_usage ? " continuous" : "");
    if (r->tools)
        str_addf(out, " tools=%zu", json_count(r->tools));
    if (r->kind == OPENAI_CHAT && !r->add_generation_prompt)
        str_addf(out, " bare");
    add_constraint(out, r);
}

#define C   "{\"model\":\"m\",\"prompt\":\"hi\","
#define H   "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],"
#define F   "\"type\":\"function\",\"function\":{\"name\":\"f\"}"
#define TXT "model=m \"hi\""
#define MSG "model=m messages=1"

#define CALLED(arguments)                                                                          \
    "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\","        \
    "\"arguments\":" arguments "}}]}]}"

static const struct {
    enum openai_kind kind;
    const char *body;
    const char *becomes; /* or NULL, and: */
    enum reason reason;
    const char *param;
} traps[] = {
    /* Accepted bodies. */
    {0, "{\"prompt\":\"hi\"}", "model= \"hi\"", 0, NULL},
    {0, C "\"stop\":null,\"logprobs\":null,\"suffix\":null,\"seed\":null,\"user\":null}", TXT, 0,
     NULL},
    {0, C "\"n\":null,\"best_of\":null,\"echo\":null,\"logit_bias\":null,\"stream\":null}", TXT, 0,
     NULL},
    {0, C "\"stream_options\":null,\"response_format\":null,\"temperature\":null}", TXT, 0, NULL},
    {0, C "\"wholly_unknown\":{\"a\":[1,2,{}]},\"x\":1}", TXT, 0, NULL},
    {0, C "\"user\":\"u\",\"store\":true,\"metadata\":{\"k\":\"v\"},\"service_tier\":\"auto\"}",
     TXT, 0, NULL},
    {0, C "\"stop\":\"a\"}", TXT " stop=a", 0, NULL},
    {0, C "\"stop\":[\"a\",\"b\"]}", TXT " stop=a stop=b", 0, NULL},
    {0, C "\"stop\":[]}", TXT, 0, NULL},
    {0, C "\"stop\":[null,\"a\"]}", TXT " stop=a", 0, NULL},
    {0, C "\"stop_token_ids\":[3,4]}", TXT " stop_id=3 stop_id=4", 0, NULL},
    {0, "{\"prompt\":[\"a\"]}", "model= \"a\"", 0, NULL},
    {0, "{\"prompt\":[\"a\",\"b\"]}", "model= \"a\" \"b\"", 0, NULL},
    {0, "{\"prompt\":[1,2,3]}", "model= [1,2,3]", 0, NULL},
    {0, "{\"prompt\":[[1,2],[3]]}", "model= [1,2] [3]", 0, NULL},
    {0, "{\"prompt\":[\"a\",[3]]}", "model= \"a\" [3]", 0, NULL},
    {0, "{\"prompt\":\"\"}", "model= \"\"", 0, NULL},
    {0, "{\"prompt\":\"a\\u0000b\",\"stop\":[\"c\\u0000\"]}", "model= \"a\\u0000b\" stop=c\\u0000",
     0, NULL},
    {0, C "\"guided_choice\":[\"a\\u0000\"]}", TXT " guided_choice: choice a\\u0000", 0, NULL},
    {1, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}", "model= messages=1", 0,
     NULL},
    {0, C "\"max_tokens\":5}", TXT " max_tokens=5", 0, NULL},
    {0, C "\"return_token_ids\":true}", TXT " ids=1", 0, NULL},
    {1, H "\"return_token_ids\":true}", MSG " ids=1", 0, NULL},
    {0, C "\"return_token_ids\":false}", TXT, 0, NULL},
    {0, C "\"return_token_ids\":1}", NULL, REASON_MALFORMED, "return_token_ids"},
    {0, C "\"max_tokens\":5.0}", TXT " max_tokens=5", 0, NULL},
    {0, C "\"max_tokens\":5,\"max_completion_tokens\":7}", TXT " max_tokens=7", 0, NULL},
    {0, C "\"max_tokens\":0,\"max_completion_tokens\":5}", TXT " max_tokens=5", 0, NULL},
    {0, C "\"max_tokens\":5,\"max_completion_tokens\":0,\"echo\":true}", TXT " max_tokens=0 echo",
     0, NULL},
    {0, C "\"max_tokens\":0.0,\"echo\":true}", TXT " max_tokens=0 echo", 0, NULL},
    {0, C "\"temperature\":0}", TXT " temperature=0", 0, NULL},
    {0, C "\"temperature\":0,\"top_p\":1,\"top_p\":1}", NULL, REASON_MALFORMED, ""},
    {0, C "\"top_p\":0.5,\"min_p\":0.1,\"top_k\":-1}", TXT " top_k=0 top_p=0.5 min_p=0.1", 0, NULL},
    {0, C "\"seed\":9007199254740993}", TXT " seed=9007199254740993", 0, NULL},
    {0, C "\"seed\":18446744073709551615}", TXT " seed=18446744073709551615", 0, NULL},
    {0, C "\"seed\":18446744073709551616}", NULL, REASON_MALFORMED, "seed"},
    {0, C "\"seed\":-9223372036854775809}", NULL, REASON_MALFORMED, "seed"},
    {0, C "\"seed\":-1}", TXT " seed=18446744073709551615", 0, NULL},
    {0, C "\"logit_bias\":{\"50\":-100,\"7\":1.5}}", TXT " bias(50)=-100 bias(7)=1.5", 0, NULL},
    {0, C "\"repetition_penalty\":1.0,\"presence_penalty\":-2,\"frequency_penalty\":0}",
     TXT " presence=-2 frequency=0 repetition=1", 0, NULL},
    {0, C "\"ignore_eos\":true,\"min_tokens\":3}", TXT " min_tokens=3 ignore_eos=1", 0, NULL},
    {0, C "\"n\":2,\"best_of\":2}", TXT " n=2", 0, NULL},
    {0, C "\"echo\":true,\"logprobs\":0}", TXT " logprobs=0 prompt_logprobs=0 echo", 0, NULL},
    {0, C "\"logprobs\":5}", TXT " logprobs=5", 0, NULL},
    {0, C "\"priority\":-3}", TXT " priority=1", 0, NULL},
    {0, C "\"priority\":3}", TXT " priority=2", 0, NULL},
    {0, C "\"priority\":\"offline\"}", TXT " priority=2", 0, NULL},
    {0, C "\"priority\":0}", TXT " priority=0", 0, NULL},
    {0, C "\"slo_class\":\"chat\",\"slo_objective\":null}", TXT " slo_class=chat", 0, NULL},
    {0, C "\"slo_objective\":{\"ttft_ms\":500,\"tpot_ms\":40.5}}",
     TXT " objective=500000,40500,0,0", 0, NULL},
    {0, C "\"slo_objective\":{\"itl_ms\":0.001,\"e2e_ms\":86400000,\"ttft_ms\":null}}",
     TXT " objective=0,0,1,86400000000", 0, NULL},
    {0, C "\"stream\":true,\"stream_options\":{\"include_usage\":true}}", TXT " stream usage", 0,
     NULL},
    {0,
     C
     "\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}",
     TXT " stream usage continuous", 0, NULL},
    {0, C "\"stream_options\":{\"include_usage\":false}}", TXT, 0, NULL},
    {0, C "\"skip_special_tokens\":false,\"add_special_tokens\":false}",
     TXT " skip_special=0 add_special=0", 0, NULL},
    {0, C "\"use_beam_search\":false,\"length_penalty\":1.0,\"guided_json\":null}", TXT, 0, NULL},
    {0, C "\"response_format\":{\"type\":\"text\"}}", TXT, 0, NULL},
    {1, H "\"max_completion_tokens\":9}", MSG " max_tokens=9", 0, NULL},
    {1, H "\"logprobs\":true,\"top_logprobs\":2}", MSG " logprobs=2", 0, NULL},
    {1, H "\"logprobs\":false,\"top_logprobs\":null}", MSG, 0, NULL},
    {1, H "\"tools\":[],\"tool_choice\":\"none\"}", MSG, 0, NULL},
    {1, H "\"tools\":[{" F "}],\"parallel_tool_calls\":true}", MSG " skip_special=0 tools=1", 0,
     NULL},
    {1, H "\"tools\":[{" F "}],\"tool_choice\":\"none\"}", MSG, 0, NULL},
    {1, H "\"modalities\":[\"text\"],\"audio\":null}", MSG, 0, NULL},
    {1, H "\"continue_final_message\":true}", MSG " bare", 0, NULL},
    {1,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"critic\",\"content\":\"b\"}]"
     "}",
     "model= messages=2 other_roles", 0, NULL},
    {1,
     "{\"messages\":[{\"role\":\"user\",\"name\":null,\"content\":[{\"type\":\"text\",\"text\":"
     "\"a\"}]}]}",
     "model= messages=1", 0, NULL},
    {1, "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":null}]}",
     "model= messages=1", 0, NULL},
    {1, CALLED("\"\""), "model= messages=1", 0, NULL},
    {1, CALLED("\"null\""), "model= messages=1", 0, NULL},
    {1, CALLED("null"), "model= messages=1", 0, NULL},
    {1, CALLED("\"{\\\"a\\\": "), NULL, REASON_MALFORMED, ""},
    {1, CALLED("\"{\\\"a\\\": \""), "model= messages=1", 0, NULL},
    {1, CALLED("\"{\\\"a\\\": \\u0000\""), "model= messages=1", 0, NULL},
    {1, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning\":null}]}",
     "model= messages=1", 0, NULL},
    /* Refused bodies, by the member's name. */
    {1, CALLED("\"[]\""), NULL, REASON_MALFORMED, "messages[0].tool_calls[0].arguments"},
    {1, CALLED("\"3\""), NULL, REASON_MALFORMED, "messages[0].tool_calls[0].arguments"},
    {1, CALLED("[]"), NULL, REASON_MALFORMED, "messages[0].tool_calls[0].arguments"},
    {1, CALLED("true"), NULL, REASON_MALFORMED, "messages[0].tool_calls[0].arguments"},
    {1, CALLED("\"\\\"{}\\\"\""), NULL, REASON_MALFORMED, "messages[0].tool_calls[0].arguments"},
    {1, "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":5}]}", NULL,
     REASON_MALFORMED, "messages[0].reasoning_content"},
    {0, "", NULL, REASON_MALFORMED, ""},
    {0, "[]", NULL, REASON_MALFORMED, ""},
    {0, "{\"prompt\":\"hi\"} x", NULL, REASON_MALFORMED, ""},
    {0, "{\"prompt\":\"\xff\"}", NULL, REASON_MALFORMED, ""},
    {0, C "\"temperature\":NaN}", NULL, REASON_MALFORMED, "temperature"},
    {0, C "\"temperature\":1e999}", NULL, REASON_MALFORMED, "temperature"},
    {0, C "\"temperature\":\"1\"}", NULL, REASON_MALFORMED, "temperature"},
    {0, C "\"max_tokens\":5.5}", NULL, REASON_MALFORMED, "max_tokens"},
    {0, C "\"max_tokens\":-1}", NULL, REASON_INVALID_SAMPLING, "max_tokens"},
    {0, C "\"max_tokens\":4294967296}", NULL, REASON_INVALID_SAMPLING, "max_tokens"},
    {0, C "\"max_tokens\":99999999999999999999}", NULL, REASON_INVALID_SAMPLING, "max_tokens"},
    {0, C "\"max_tokens\":1048577}", NULL, REASON_INVALID_SAMPLING, "max_tokens"},
    {0, C "\"max_tokens\":-1.0}", NULL, REASON_INVALID_SAMPLING, "max_tokens"},
    {0, C "\"max_tokens\":\"5\"}", NULL, REASON_MALFORMED, "max_tokens"},
    {0, C "\"min_tokens\":-1}", NULL, REASON_INVALID_SAMPLING, "min_tokens"},
    {0, C "\"logprobs\":-1}", NULL, REASON_INVALID_SAMPLING, "logprobs"},
    {0, C "\"mirostat\":0,\"dry_multiplier\":0.0,\"grammar\":\"\",\"json_schema\":null}", TXT, 0,
     NULL},
    {0, C "\"reasoning_effort\":\"high\",\"cache_salt\":\"s\",\"nobody_knows\":{\"a\":1}}", TXT, 0,
     NULL},
    {0, C "\"grammar\":\"root ::= \\\"a\\\"\"}", NULL, REASON_UNSUPPORTED_PARAMETER, "grammar"},
    {0, C "\"json_schema\":{}}", NULL, REASON_UNSUPPORTED_PARAMETER, "json_schema"},
    {0, C "\"mirostat\":2}", NULL, REASON_UNSUPPORTED_PARAMETER, "mirostat"},
    {0, C "\"dry_multiplier\":0.8}", NULL, REASON_UNSUPPORTED_PARAMETER, "dry_multiplier"},
    {1, H "\"web_search_options\":{}}", NULL, REASON_UNSUPPORTED_PARAMETER, "web_search_options"},
    {0, C "\"stream\":1}", NULL, REASON_MALFORMED, "stream"},
    {0, C "\"stream_options\":{\"include_usage\":\"yes\"}}", NULL, REASON_MALFORMED,
     "stream_options.include_usage"},
    {0, "{}", NULL, REASON_MISSING_INPUT, "prompt"},
    {0, "{\"prompt\":null}", NULL, REASON_MISSING_INPUT, "prompt"},
    {0, "{\"prompt\":[]}", NULL, REASON_EMPTY_PROMPT, "prompt"},
    {0, "{\"prompt\":{}}", NULL, REASON_MALFORMED, "prompt"},
    {0, "{\"prompt\":[1,\"a\"]}", NULL, REASON_INVALID_TOKEN_ID, "prompt"},
    {0, "{\"prompt\":[[1],[-2]]}", NULL, REASON_INVALID_TOKEN_ID, "prompt[1]"},
    {0, C "\"n\":0}", NULL, REASON_INVALID_SAMPLING, "n"},
    {0, C "\"n\":129}", NULL, REASON_INVALID_SAMPLING, "n"},
    {0, C "\"n\":-1}", NULL, REASON_INVALID_SAMPLING, "n"},
    {0, "{\"prompt\":[\"a\",\"b\"],\"n\":65}", NULL, REASON_INVALID_SAMPLING, "n"},
    {0, C "\"best_of\":3}", NULL, REASON_UNSUPPORTED_PARAMETER, "best_of"},
    {0, C "\"n_predict\":5}", NULL, REASON_UNSUPPORTED_PARAMETER, "n_predict"},
    {0, C "\"repeat_penalty\":1.1}", NULL, REASON_UNSUPPORTED_PARAMETER, "repeat_penalty"},
    {0, C "\"repeat_penalty\":1,\"n_probs\":0}", TXT, 0, NULL},
    {0, C "\"suffix\":\"x\"}", NULL, REASON_UNSUPPORTED_PARAMETER, "suffix"},
    {0, C "\"logprobs\":21}", NULL, REASON_INVALID_SAMPLING, "logprobs"},
    {1, H "\"max_tokens\":0}", NULL, REASON_INVALID_SAMPLING, "max_tokens"},
    {1, H "\"logprobs\":true,\"top_logprobs\":21}", NULL, REASON_INVALID_SAMPLING, "top_logprobs"},
    {0, C "\"logit_bias\":{\"a\":1}}", NULL, REASON_INVALID_TOKEN_ID, "logit_bias"},
    {0, C "\"logit_bias\":{\"5\":101}}", NULL, REASON_INVALID_SAMPLING, "logit_bias"},
    {0, C "\"stop\":[1]}", NULL, REASON_INVALID_STOP, "stop"},
    {0, C "\"priority\":\"urgent\"}", NULL, REASON_INVALID_PRIORITY, "priority"},
    {0, C "\"slo_class\":3}", NULL, REASON_MALFORMED, "slo_class"},
    {0, C "\"slo_objective\":{\"tpot_ms\":40,\"ttft\":1}}", NULL, REASON_UNSUPPORTED_PARAMETER,
     "slo_objective"},
    {0, C "\"slo_objective\":{\"ttft_us\":null}}", NULL, REASON_UNSUPPORTED_PARAMETER,
     "slo_objective"},
    {0, C "\"slo_objective\":\"fast\"}", NULL, REASON_MALFORMED, "slo_objective"},
    {0, C "\"slo_objective\":{\"ttft_ms\":0}}", NULL, REASON_MALFORMED, "slo_objective.ttft_ms"},
    {0, C "\"slo_objective\":{\"tpot_ms\":-1}}", NULL, REASON_MALFORMED, "slo_objective.tpot_ms"},
    {0, C "\"slo_objective\":{\"e2e_ms\":86400100}}", NULL, REASON_MALFORMED,
     "slo_objective.e2e_ms"},
    {0, C "\"slo_objective\":{\"itl_ms\":\"1s\"}}", NULL, REASON_MALFORMED, "slo_objective.itl_ms"},
    {0, C "\"lora_request\":{\"name\":\"l\"}}", NULL, REASON_UNSUPPORTED_PARAMETER, "lora_request"},
    {0, C "\"prompt_logprobs\":1}", NULL, REASON_UNSUPPORTED_PARAMETER, "prompt_logprobs"},
    {0, C "\"use_beam_search\":true}", NULL, REASON_UNSUPPORTED_PARAMETER, "use_beam_search"},
    {0, C "\"guided_regex\":\"a+\"}", TXT " guided_regex: regex a+", 0, NULL},
    {0, C "\"guided_json_object\":false,\"structured_outputs\":{\"json_object\":true}}",
     TXT " structured_outputs: object", 0, NULL},
    {0, C "\"guided_choice\":[\"a\",\"b c\"]}", TXT " guided_choice: choice a|b c", 0, NULL},
    {0, C "\"guided_json\":{\"b\":[1,2.5],\"a\":\"\\u00e9\"}}",
     TXT " guided_json: schema {\"b\":[1,2.5],\"a\":\"\xc3\xa9\"}", 0, NULL},
    {0, C "\"structured_outputs\":{\"json\":\"{}\",\"disable_any_whitespace\":true}}",
     TXT " structured_outputs: schema {}", 0, NULL},
    {1, H "\"response_format\":{\"type\":\"json_object\"}}", MSG " response_format: object", 0,
     NULL},
    {1,
     H "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":"
       "true,"
       "\"schema\":{\"type\":\"null\"}}}}",
     MSG " response_format: schema {\"type\":\"null\"}", 0, NULL},
    {1, H "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}}", NULL,
     REASON_MALFORMED, "response_format.json_schema.schema"},
    {0, C "\"guided_regex\":\"a\",\"structured_outputs\":{\"regex\":\"a\"}}", NULL,
     REASON_MALFORMED, "structured_outputs.regex"},
    {0, C "\"guided_choice\":[\"a\",1]}", NULL, REASON_MALFORMED, "guided_choice"},
    {0, C "\"guided_grammar\":\"a\"}", NULL, REASON_UNSUPPORTED_PARAMETER, "guided_grammar"},
    {0, C "\"structured_outputs\":{\"structural_tag\":\"a\"}}", NULL, REASON_UNSUPPORTED_PARAMETER,
     "structured_outputs.structural_tag"},
    {0, C "\"guided_whitespace_pattern\":\" *\"}", NULL, REASON_UNSUPPORTED_PARAMETER,
     "guided_whitespace_pattern"},
    {0, "{\"model\":\"m\\u0000\",\"prompt\":\"hi\"}", NULL, REASON_MALFORMED, "model"},
    {1, "{\"messages\":[]}", NULL, REASON_EMPTY_PROMPT, "messages"},
    {1, "{\"prompt\":\"hi\"}", NULL, REASON_MISSING_INPUT, "messages"},
    {1, "{\"messages\":[{\"content\":\"x\"}]}", NULL, REASON_MALFORMED, "messages[0].role"},
    {1, "{\"messages\":[\"hi\"]}", NULL, REASON_MALFORMED, "messages[0].role"},
    {1, "{\"messages\":[{\"role\":7,\"content\":\"x\"}]}", NULL, REASON_MALFORMED,
     "messages[0].role"},
    {1, "{\"messages\":[{\"role\":\"a\\u0000\",\"content\":\"x\"}]}", NULL, REASON_MALFORMED,
     "messages[0].role"},
    {1, "{\"messages\":[{\"role\":\"user\"}]}", NULL, REASON_MALFORMED, "messages[0].content"},
    {1, "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", NULL, REASON_MALFORMED,
     "messages[0].content"},
    {1,
     "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]}",
     NULL, REASON_UNSUPPORTED_PARAMETER, "messages[0].content[0].type"},
    {1, H "\"top_logprobs\":2}", NULL, REASON_INVALID_SAMPLING, "top_logprobs"},
    {1, H "\"tools\":[{\"type\":\"retrieval\"}]}", NULL, REASON_UNSUPPORTED_PARAMETER,
     "tools[0].type"},
    {1, H "\"tools\":[{\"type\":\"function\"}]}", NULL, REASON_MALFORMED, "tools[0].function"},
    {1,
     H "\"tools\":[{" F "}],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}}",
     NULL, REASON_MALFORMED, "tool_choice.function.name"},
    {1, H "\"tool_choice\":\"required\"}", NULL, REASON_MALFORMED, "tool_choice"},
    {1, H "\"functions\":[{\"name\":\"f\"}]}", NULL, REASON_UNSUPPORTED_PARAMETER, "functions"},
    {1, H "\"response_format\":{\"type\":\"xml\"}}", NULL, REASON_UNSUPPORTED_PARAMETER,
     "response_format.type"},
    {1, H "\"response_format\":{}}", NULL, REASON_MALFORMED, "response_format.type"},
    {1, H "\"modalities\":[\"text\",\"audio\"]}", NULL, REASON_UNSUPPORTED_PARAMETER, "modalities"},
    {1, H "\"chat_template\":\"{{ messages }}\"}", NULL, REASON_UNSUPPORTED_PARAMETER,
     "chat_template"},
    {1, H "\"continue_final_message\":true,\"add_generation_prompt\":true}", NULL, REASON_MALFORMED,
     "continue_final_message"},
};

static void test_traps(void **state)
{
    (void)state;
    struct str text;
    str_init(&text, 65536);
    for (size_t i = 0; i < sizeof traps / sizeof *traps; i++) {
        struct openai_request request;
        struct openai_refusal refusal;
        str_clear(&text);
        bool fine = openai_request_read(&request, traps[i].kind, traps[i].body,
                                        strlen(traps[i].body), MAX_BYTES, &refusal);
        if (fine) {
            describe(&text, &request);
            openai_request_deinit(&request);
        }
        if (fine != (traps[i].becomes != NULL))
            fail_msg("%s: %s", traps[i].body, fine ? text.data : refusal.err.text);
        if (fine) {
            assert_string_equal(text.data, traps[i].becomes);
            continue;
        }
        if (refusal.reason != traps[i].reason || strcmp(refusal.param, traps[i].param) != 0)
            fail_msg("%s: %s of \"%s\": %s", traps[i].body, reason_name(refusal.reason),
                     refusal.param, refusal.err.text);
        assert_true(strlen(refusal.err.text) > 5);
    }
    str_deinit(&text);
}

static void check(enum openai_kind kind, const char *body, size_t length, enum reason reason,
                  const char *param)
{
    struct openai_request request;
    struct openai_refusal refusal;
    bool fine = openai_request_read(&request, kind, body, length, MAX_BYTES, &refusal);
    if (fine)
        openai_request_deinit(&request);
    if (fine != !reason || refusal.reason != reason)
        fail_msg("%.200s...: %s", body, refusal.err.text);
    if (reason)
        assert_string_equal(refusal.param, param);
}

/* `count` times `piece`, between `before` and `after`. */
static void check_many(enum openai_kind kind, const char *const parts[3], size_t count,
                       enum reason reason, const char *param)
{
    struct str body;
    str_init(&body, MAX_BYTES + 100);
    str_add(&body, parts[0]);
    for (size_t i = 0; i < count; i++) {
        str_add(&body, i ? "," : "");
        str_add(&body, parts[1]);
    }
    str_add(&body, parts[2]);
    check(kind, body.data, body.length, reason, param);
    str_deinit(&body);
}

static void test_limits(void **state)
{
    (void)state;
    static const char *const prompts[] = {"{\"prompt\":[", "\"a\"", "]}"};
    check_many(0, prompts, OPENAI_MAX_PROMPTS, REASON_NONE, "");
    check_many(0, prompts, OPENAI_MAX_PROMPTS + 1, REASON_MALFORMED, "prompt");
    static const char *const messages[] = {"{\"messages\":[",
                                           "{\"role\":\"user\",\"content\":\"\"}", "]}"};
    check_many(1, messages, OPENAI_MAX_MESSAGES, REASON_NONE, "");
    check_many(1, messages, OPENAI_MAX_MESSAGES + 1, REASON_MALFORMED, "messages");
    static const char *const tools[] = {H "\"tools\":[", "{" F "}", "]}"};
    check_many(1, tools, OPENAI_MAX_TOOLS, REASON_NONE, "");
    check_many(1, tools, OPENAI_MAX_TOOLS + 1, REASON_MALFORMED, "tools");
}

static void test_depth_and_size(void **state)
{
    (void)state;
    char body[600] = "{\"prompt\":\"a\",\"x\":";
    size_t at = strlen(body);
    for (int depth = OPENAI_MAX_DEPTH - 1; depth <= OPENAI_MAX_DEPTH; depth++) {
        memset(body + at, '[', (size_t)depth);
        memset(body + at + depth, ']', (size_t)depth);
        strcpy(body + at + 2 * (size_t)depth, "}");
        check(0, body, strlen(body), depth < OPENAI_MAX_DEPTH ? REASON_NONE : REASON_MALFORMED, "");
    }
    char *large = malloc(MAX_BYTES + 1);
    assert_non_null(large);
    memset(large, ' ', MAX_BYTES + 1);
    memcpy(large, "{\"prompt\":\"a\"}", 14);
    check(0, large, MAX_BYTES, REASON_NONE, "");
    check(0, large, MAX_BYTES + 1, REASON_MALFORMED, "");
    free(large);
}

static void test_names_of_functions(void **state)
{
    (void)state;
    char body[400], name[OPENAI_MAX_NAME + 2] = "";
    for (size_t length = OPENAI_MAX_NAME; length <= OPENAI_MAX_NAME + 1; length++) {
        memset(name, 'n', length);
        snprintf(body, sizeof body,
                 H "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"%s\"}}]}", name);
        check(1, body, strlen(body), length > OPENAI_MAX_NAME ? REASON_MALFORMED : REASON_NONE,
              "tools[0].function.name");
    }
}

/* HTTP makes the same messages as gRPC sends: the one validator takes both. */
static void test_messages_pass_the_validator(void **state)
{
    (void)state;
    static const struct request_model model = {
        .name = "m", .context = 100, .vocab = 60, .has_tokenizer = true};
    static const char body[] = C "\"temperature\":0.5,\"stop\":[\"x\"],\"logit_bias\":{\"5\":1},"
                                 "\"seed\":7,\"max_tokens\":9,\"priority\":-1,\"logprobs\":2}";
    struct openai_request request;
    struct openai_refusal refusal;
    struct request_params params;
    struct error err;
    assert_true(openai_request_read(&request, 0, body, strlen(body), MAX_BYTES, &refusal));
    assert_int_equal(request_parse(openai_request_message(&request, request.prompts),
                                   &request.fields, &model, &params, &err),
                     REASON_NONE);
    assert_int_equal(params.text.length, 2);
    assert_memory_equal(params.text.bytes, "hi", 2);
    assert_true(params.add_special_tokens && params.return_token_ids);
    assert_true(params.sampling.temperature == 0.5f && params.sampling.seed == 7);
    assert_int_equal(params.sampling.bias_count, 1);
    assert_int_equal(params.sampling.top_logprobs, 2);
    assert_int_equal(params.priority, PRIORITY_HIGH);
    struct openai_prompt ids = {.ids = (const uint32_t[]){1, 2}, .id_count = 2};
    assert_int_equal(request_parse(openai_request_message(&request, &ids), &request.fields, &model,
                                   &params, &err),
                     REASON_NONE);
    assert_int_equal(params.token_count, 2);
    assert_null(params.text.bytes);
    openai_request_deinit(&request);
}

#define TEXT_OF_64  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define TEXT_OF_256 TEXT_OF_64 TEXT_OF_64 TEXT_OF_64 TEXT_OF_64
#define NO_ANSWER                                                                                  \
    "max_tokens must be between 1 and 1048576 (0: with echo, for the prompt alone), got 0"

/* Refusals of the validator use the client's names of fields. */
static void test_sentences_name_the_bodys_fields(void **state)
{
    (void)state;
    static const struct {
        const char *body, *sentence, *param;
    } rows[] = {
        {"{\"prompt\":[1,2,60]}", "prompt[2] is 60, but the model's ids end at 59", "prompt"},
        {"{\"prompt\":[[1],[2,99]]}", "prompt[1][1] is 99, but the model's ids end at 59",
         "prompt"},
        {"{\"prompt\":\"a\",\"stop_token_ids\":[1,61]}",
         "stop_token_ids[1] is 61, but the model's ids end at 59", "stop_token_ids"},
        {"{\"prompt\":\"a\",\"stop\":[\"x\",\"" TEXT_OF_256 "b\"]}",
         "stop[1] must have 1 to 256 bytes, got 257", "stop"},
        {"{\"prompt\":\"a\",\"stop\":\"\"}", "stop[0] must have 1 to 256 bytes, got 0", "stop"},
        {"{\"prompt\":\"a\",\"stop\":[\"x\",\"\"]}", "stop[1] must have 1 to 256 bytes, got 0",
         "stop"},
        {"{\"prompt\":\"a\",\"logit_bias\":{\"60\":1}}",
         "logit_bias names token 60, but the model's ids end at 59", "logit_bias"},
        {"{\"prompt\":\"a\",\"max_tokens\":0}", NO_ANSWER, "max_tokens"},
        {"{\"prompt\":\"a\",\"max_tokens\":0,\"echo\":true,\"min_tokens\":1}", NO_ANSWER,
         "max_tokens"},
    };
    static const struct request_model model = {
        .name = "m", .context = 100, .vocab = 60, .has_tokenizer = true};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct openai_request request;
        struct openai_refusal refusal;
        struct request_params params;
        struct error err = {""};
        char param[OPENAI_PARAM_BYTES];
        enum reason reason = REASON_NONE;
        assert_true(openai_request_read(&request, OPENAI_COMPLETION, rows[i].body,
                                        strlen(rows[i].body), MAX_BYTES, &refusal));
        for (size_t j = 0; j < request.prompt_count && !reason; j++)
            reason = request_parse(openai_request_message(&request, &request.prompts[j]),
                                   &request.fields, &model, &params, &err);
        assert_string_equal(err.text, rows[i].sentence);
        openai_request_param(OPENAI_COMPLETION, reason, err.text, param);
        assert_string_equal(param, rows[i].param);
        openai_request_deinit(&request);
    }
}

/* A number out of its range gets the same sentence, whether a message has room for it or not. */
static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *body, *sentence;
    } rows[] = {
        {C "\"max_tokens\":-1}", "max_tokens must be between 1 and 1048576, got -1"},
        {C "\"max_tokens\":8589934592}",
         "max_tokens must be between 1 and 1048576, got 8589934592"},
        {C "\"max_tokens\":99999999999999999999}",
         "max_tokens must be between 1 and 1048576, got a number of more than 63 bits"},
        {C "\"max_completion_tokens\":0}",
         "max_completion_tokens must be between 1 and 1048576, got 0"},
        {C "\"max_tokens\":0,\"max_completion_tokens\":-1,\"echo\":true}",
         "max_completion_tokens must be between 1 and 1048576, got -1"},
        {C "\"n\":-1}", "n must be between 1 and 16, got -1"},
        {C "\"n\":0}", "n must be between 1 and 16, got 0"},
        {C "\"n\":17}", "n must be between 1 and 16, got 17"},
        {C "\"logprobs\":21}", "logprobs must be between 0 and 20, got 21"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct openai_request request;
        struct openai_refusal refusal;
        assert_false(openai_request_read(&request, OPENAI_COMPLETION, rows[i].body,
                                         strlen(rows[i].body), MAX_BYTES, &refusal));
        assert_int_equal(refusal.reason, REASON_INVALID_SAMPLING);
        assert_string_equal(refusal.err.text, rows[i].sentence);
    }
}

static void test_an_answer_fills_the_context(void **state)
{
    (void)state;
    static const struct request_model model = {.name = "m", .context = 100, .vocab = 60};
    struct request_params params = {.sampling = sampling_default()};
    openai_request_fill(&model, 40, &params);
    assert_int_equal(params.sampling.max_tokens, 60);
    params = (struct request_params){.sampling = sampling_default(), .max_tokens_given = true};
    openai_request_fill(&model, 40, &params);
    assert_int_equal(params.sampling.max_tokens, 16);
    params.max_tokens_given = false;
    openai_request_fill(&model, 100, &params); /* refused later */
    assert_int_equal(params.sampling.max_tokens, 16);
}

static void test_parameters_of_the_validators_refusals(void **state)
{
    (void)state;
    static const struct {
        enum openai_kind kind;
        enum reason reason;
        const char *sentence, *param;
    } rows[] = {
        {0, REASON_INVALID_SAMPLING, "temperature must be between 0 and 100", "temperature"},
        {0, REASON_INVALID_SAMPLING, "At most 64", ""},
        {0, REASON_CONTEXT_LENGTH_EXCEEDED, "", "prompt"},
        {1, REASON_CONTEXT_LENGTH_EXCEEDED, "", "messages"},
        {0, REASON_INVALID_TOKEN_ID, "prompt[0] is 9, but ...", "prompt"},
        {1, REASON_INVALID_TOKEN_ID, "tokenized text[0] is 9, but ...", "messages"},
        {1, REASON_INVALID_TOKEN_ID, "logit_bias names token 9, but ...", "logit_bias"},
        {0, REASON_MODEL_NOT_FOUND, "", "model"},
        {0, REASON_INVALID_STOP, "stop may hold", "stop"},
        {0, REASON_INVALID_STOP, "", ""},
        {0, REASON_OVERLOADED, "", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char param[OPENAI_PARAM_BYTES];
        openai_request_param(rows[i].kind, rows[i].reason, rows[i].sentence, param);
        assert_string_equal(param, rows[i].param);
    }
}

static void test_records_for_templates(void **state)
{
    (void)state;
#define TAIL(generation, arguments)                                                                \
    ",\"documents\":null,\"add_generation_prompt\":" generation                                    \
    ",\"continue_final_message\":false,\"chat_template_kwargs\":" arguments "}"
    static const struct {
        const char *body, *record;
    } rows[] = {
        {"{\"messages\":[{\"role\":\"developer\",\"content\":\"be\"},{\"content\":\"\\u00e9\","
         "\"role\":\"user\"}]}",
         "{\"messages\":[{\"role\":\"system\",\"content\":\"be\"},{\"role\":\"user\",\"content\":"
         "\"\xc3\xa9\"}],"
         "\"tools\":null" TAIL("true", "{}")},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},\"b\"]}"
         "],"
         "\"chat_template_kwargs\":{\"enable_thinking\":false},\"add_generation_prompt\":false}",
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
         "\"type\":\"text\",\"text\":\"b\"}]}],\"tools\":null" TAIL("false",
                                                                    "{\"enable_thinking\":false}")},
        {"{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"c1\",\"type\":"
         "\"function\",\"function\":"
         "{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": [1, 2.5, true]}\"}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"name\":\"f\",\"content\":\"21\"}],\"tools\":"
         "[{" F "}]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":"
         "\"function\",\"id\":\"c1\","
         "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\": [1, 2.5, true]}\"}}]},"
         "{\"role\":\"tool\",\"content\":\"21\",\"name\":\"f\",\"tool_call_id\":\"c1\"}],"
         "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]" TAIL("true", "{}")},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":"
         "{\"name\":\"f\",\"arguments\":\"not json\"}}]}]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":"
         "\"function\","
         "\"function\":{\"name\":\"f\",\"arguments\":\"not json\"}}]}],\"tools\":null" TAIL("true",
                                                                                            "{}")},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":"
         "\"no\"}],\"refusal\":null,\"annotations\":null,\"function_call\":null,\"tool_calls\":"
         "null},"
         "{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}],\"tools\":[]}",
         "{\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"no\"}]}"
         ","
         "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\","
         "\"function\":"
         "{\"name\":\"f\",\"arguments\":{}}}]}],\"tools\":null" TAIL("true", "{}")},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{" F
         "}],\"tool_choice\":"
         "\"none\",\"documents\":[{\"title\":\"t\",\"text\":\"x\"}]}",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":null,\"documents\":[{"
         "\"title\":"
         "\"t\",\"text\":\"x\"}],\"add_generation_prompt\":true,\"continue_final_message\":false,"
         "\"chat_template_kwargs\":{}}"},
    };
    struct str record;
    str_init(&record, 65536);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct openai_request request;
        struct openai_refusal refusal;
        if (!openai_request_read(&request, OPENAI_CHAT, rows[i].body, strlen(rows[i].body),
                                 MAX_BYTES, &refusal))
            fail_msg("%s: %s", rows[i].body, refusal.err.text);
        str_clear(&record);
        struct chat_request chat = openai_chat_request(&request);
        chat_record_write(&chat, &record);
        assert_string_equal(record.data, rows[i].record);
        openai_request_deinit(&request);
    }
    str_deinit(&record);
}

/* Writes roles of OpenAI's, and other ones from the tenth message on. */
#define LATE_ROLES                                                                                 \
    "{%- for m in messages %}{%- if m.role == 'user' or loop.index0 > 9 %}{{- m.content ~ ' ' }}"  \
    "{%- endif %}{%- endfor %}"

/* A message that the template leaves out is found, whatever the others are. */
static void test_a_role_that_is_left_out(void **state)
{
    (void)state;
    static const struct tokenizer_file file = {.model_settings = NULL};
    char path[] = "/tmp/test_template_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 &&
                write(fd, LATE_ROLES, strlen(LATE_ROLES)) == (ssize_t)strlen(LATE_ROLES));
    close(fd);
    struct served_model model = {.name = "m", .limits = {.context = 2000, .vocab = 256}};
    model.limits.max_text_bytes = 1 << 20;
    struct error err;
    assert_int_equal(chat_template_open_file(path, &model.chat, &err), STATUS_OK);
    assert_int_equal(tokenizer_file_open(&file, &model.tokenizer, &err), STATUS_OK);
    unlink(path);
    for (size_t left_out = 0; left_out <= 2; left_out++) { /* 0: none of the sixteen messages */
        struct openai_request request;
        struct openai_refusal refusal;
        struct token_ids ids;
        struct openai_rendered rendered = {.ids = &ids};
        struct str body;
        str_init(&body, 10000);
        for (size_t i = 0; i < 16; i++)
            str_addf(&body, "%s{\"role\":\"%s\",\"content\":\"a\"}", i ? "," : "{\"messages\":[",
                     i == 15 || i == left_out - 1 ? "critic" : "user");
        str_add(&body, "]}");
        assert_true(openai_request_read(&request, OPENAI_CHAT, body.data, body.length, MAX_BYTES,
                                        &refusal));
        token_ids_init(&ids, 2000);
        assert_int_equal(openai_render(&model, &request, &rendered, &err),
                         left_out ? REASON_CHAT_REFUSED : REASON_NONE);
        token_ids_deinit(&ids);
        openai_request_deinit(&request);
        str_deinit(&body);
    }
    chat_template_close(model.chat);
    tokenizer_close(model.tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traps),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_depth_and_size),
        cmocka_unit_test(test_names_of_functions),
        cmocka_unit_test(test_messages_pass_the_validator),
        cmocka_unit_test(test_sentences_name_the_bodys_fields),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_an_answer_fills_the_context),
        cmocka_unit_test(test_parameters_of_the_validators_refusals),
        cmocka_unit_test(test_records_for_templates),
        cmocka_unit_test(test_a_role_that_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
