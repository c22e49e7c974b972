/* Any bytes as generation_config.json, and as the tokenizer's two files. An accepted file holds
 * defaults that a request may hold, and ends answers by ids of the model. */
#include "common/language/model_config/model_config.h"
#include "tests/fuzz/fuzz.h"

#define VOCAB 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_quiet();
    fuzz_write("generation_config.json", (struct fuzz_bytes){data, size});
    fuzz_write("tokenizer_config.json", (struct fuzz_bytes){data, size});
    fuzz_write("tokenizer.json", (struct fuzz_bytes){data, size});
    struct error err;
    struct model_config config = {.shape = {.vocab = VOCAB}, .end_ids = {1, {7}}};
    if (generation_config_read(fuzz_folder(), &config, &err) != STATUS_OK) {
        fuzz_check_sentence(err.text);
        return 0;
    }
    end_ids_add_token(&config.end_ids, fuzz_folder(), VOCAB);
    const struct generation_defaults defaults = config.defaults;
    const struct end_ids end_ids = config.end_ids;
    FUZZ_CHECK(end_ids.count <= MODEL_MAX_END_IDS);
    for (uint32_t i = 0; i < end_ids.count; i++)
        FUZZ_CHECK(end_ids.ids[i] < VOCAB && memchr(end_ids.names[i], 0, END_IDS_NAME_BYTES));
    struct str line;
    str_init(&line, 1 << 16);
    end_ids_describe(&end_ids, &line);
    FUZZ_CHECK(line.length && !line.truncated && !strchr(line.data, '\n'));
    str_deinit(&line);
    if (defaults.has_temperature)
        FUZZ_CHECK(defaults.temperature >= 0 && defaults.temperature <= 100);
    if (defaults.has_top_p)
        FUZZ_CHECK(defaults.top_p > 0 && defaults.top_p <= 1);
    if (defaults.has_min_p)
        FUZZ_CHECK(defaults.min_p >= 0 && defaults.min_p < 1);
    return 0;
}
