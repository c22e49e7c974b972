/* The mock engine: an engine without weights. It serves planning, and tests of whole clusters on
 * machines without accelerators. Its answers are no answers: they are plain words of the model's
 * vocabulary in a random order, and run on to max_tokens.
 *
 * Rows of KV are real bytes in the real pool (mock_rows.h): handoffs, caches, swaps and failures
 * move them as they move a model's, and a wrong one gives a wrong token. The same prompt, seed,
 * choice and index give the same tokens and hashes, in any company, on any worker.
 *
 * A step takes the time that its profile says (step_profile.h), from the call on, and sleeps for
 * what is left of it. Needs config.json of the model's folder, and takes tokens from its
 * tokenizer.json. A folder without one has all ids drawn, except for end ids.
 *
 * Log probabilities belong to the mock's own distribution (mock_rows.h). top_k, top_p, min_p,
 * penalties and biases above -100 change nothing. `logits` is NULL. */
#ifndef BATON_ENGINE_MOCK_MOCK_ENGINE_H
#define BATON_ENGINE_MOCK_MOCK_ENGINE_H

#include "common/base/domain/step_profile.h"
#include "common/engine/engine.h"

/* As engine_open, with STATUS_NOT_FOUND and the like for the folder's small files. */
enum status mock_engine_open(const struct engine_config *config, struct engine **engine,
                             struct error *err) WARN_UNUSED;

/* --- profiles by name (profile_file.c): the build holds those of deploy/profiles --- */

/* Reads a profile: the name of one that the build holds, or the path of a JSON file (with a slash,
 * or ending in ".json"). STATUS_NOT_FOUND: no such profile; the sentence lists the names, or the
 * path. STATUS_INVALID: the sentence lists all mistakes of the file. */
enum status profile_read(const char *name, struct step_profile *profile,
                         struct error *err) WARN_UNUSED;
/* As the `check` of a config_setting. */
enum status profile_check(const char *name, struct error *err);
/* Parses the text of a profile. PURE. */
enum status profile_parse(const char *text, size_t length, struct step_profile *profile,
                          struct error *err) WARN_UNUSED;

/* The files of deploy/profiles (generated), by name. */
struct shipped_profile {
    const char *name, *text;
};
extern const struct shipped_profile shipped_profiles[];
extern const size_t shipped_profile_count;

#endif
