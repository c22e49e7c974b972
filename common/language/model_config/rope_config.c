#include "common/language/model_config/rope_config.h"

#include "common/base/json/json.h"

#include <string.h>

#define DEFAULT_THETA 10000
#define MAX_THETA     1e12
#define MAX_CONTEXT   (1 << 24)

/* Members that a default or llama3 embedding may have. */
static const char *const MEMBERS[] = {
    "rope_type",
    "type",
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
    "partial_rotary_factor",
};

static enum status refuse_other_members(const struct json_value *rope, struct error *err)
{
    for (struct json_member m = {0}; json_next(rope, &m);) {
        bool known = !m.value;
        for (size_t i = 0; i < sizeof MEMBERS / sizeof *MEMBERS; i++)
            known |= strcmp(MEMBERS[i], m.key) == 0;
        if (!known)
            return error_set(err, STATUS_UNSUPPORTED, "\"%.100s\": not supported, found %s", m.key,
                             json_kind_name(m.value));
    }
    double part = 1;
    if (json_find(rope, "partial_rotary_factor"))
        TRY(json_get_double(rope, "partial_rotary_factor", 0, 1, &part, err));
    if (part != 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"partial_rotary_factor\": only 1 is supported, found %g", part);
    return STATUS_OK;
}

static enum status parse_llama3(const struct json_value *rope, struct rope_scaling *scaling,
                                struct error *err)
{
    int64_t context;
    TRY(json_get_double(rope, "factor", 1, 1e6, &scaling->factor, err));
    TRY(json_get_double(rope, "low_freq_factor", 1e-3, 1e6, &scaling->low_freq_factor, err));
    TRY(json_get_double(rope, "high_freq_factor", 1e-3, 1e6, &scaling->high_freq_factor, err));
    TRY(json_get_i64(rope, "original_max_position_embeddings", 1, MAX_CONTEXT, &context, err));
    scaling->original_context = (uint32_t)context;
    if (scaling->high_freq_factor <= scaling->low_freq_factor)
        return error_set(err, STATUS_INVALID,
                         "\"high_freq_factor\" must be above low_freq_factor (%g), found %g",
                         scaling->low_freq_factor, scaling->high_freq_factor);
    return STATUS_OK;
}

/* `rope` is rope_parameters (whose type is "default" where it is left out), rope_scaling, or NULL:
 * no scaling. */
static enum status parse_type(const struct json_value *rope, bool type_needed,
                              struct model_shape *shape, struct error *err)
{
    /* Files written before transformers 4.43 call it "type". */
    bool old = json_find(rope, "type") && !json_find(rope, "rope_type");
    const char *key = old ? "type" : "rope_type", *type = "default";
    shape->rope_scaling = (struct rope_scaling){.factor = 1};
    if (rope && (type_needed || json_find(rope, key)))
        TRY(json_get_string(rope, key, &type, NULL, err));
    bool llama3 = strcmp(type, "llama3") == 0;
    if (!llama3 && strcmp(type, "default") != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"%s\": only \"default\" and \"llama3\" are supported, found \"%.100s\"",
                         key, type);
    TRY(refuse_other_members(rope, err));
    return llama3 ? parse_llama3(rope, &shape->rope_scaling, err) : STATUS_OK;
}

/* One value, wherever it is said. */
static enum status parse_theta(const struct json_value *root, const struct json_value *rope,
                               bool needed, double *theta, struct error *err)
{
    double outer = DEFAULT_THETA, inner;
    bool has_inner = json_find(rope, "rope_theta"), has_outer = json_find(root, "rope_theta");
    if (has_outer || (needed && !has_inner))
        TRY(json_get_double(root, "rope_theta", 1, MAX_THETA, &outer, err));
    inner = outer;
    if (has_inner)
        TRY(json_get_double(rope, "rope_theta", 1, MAX_THETA, &inner, err));
    if (has_outer && inner != outer)
        return error_set(err, STATUS_INVALID,
                         "\"rope_theta\": found %g and, in rope_parameters, %g", outer, inner);
    *theta = inner;
    return STATUS_OK;
}

enum status rope_config_parse(const struct json_value *root, bool theta_needed,
                              struct model_shape *shape, struct error *err)
{
    bool newer = json_find(root, "rope_parameters") != NULL;
    const char *key = newer ? "rope_parameters" : "rope_scaling";
    const struct json_value *rope = json_find(root, key);
    if (newer && json_find(root, "rope_scaling"))
        return error_set(err, STATUS_UNSUPPORTED,
                         "\"rope_scaling\": beside \"rope_parameters\" it is one too many");
    if (rope)
        TRY(json_get_object(root, key, &rope, err));
    TRY(parse_theta(root, rope, theta_needed, &shape->rope_theta, err));
    enum status status = parse_type(rope, !newer, shape, err);
    return status == STATUS_OK ? STATUS_OK : error_prefix(err, status, "\"%s\"", key);
}
