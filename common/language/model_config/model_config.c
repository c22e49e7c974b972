#include "common/language/model_config/model_config.h"

#include "common/language/model_config/config_json.h"
#include "common/language/model_config/generation_config.h"

enum status model_config_read(const char *model_dir, struct model_config *config, struct error *err)
{
    struct model_config read = {0};
    TRY(config_json_read(model_dir, &read.shape, &read.quantization, &read.end_ids, err));
    TRY(generation_config_read(model_dir, read.shape.vocab, &read.end_ids, &read.defaults, err));
    *config = read;
    return STATUS_OK;
}
