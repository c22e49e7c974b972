#include "common/language/text/token_text.h"

#include "common/language/text/decoder.h"

#include <string.h>

bool token_text_is_known(const struct tokenizer *tokenizer)
{
    return tokenizer_decoder(tokenizer)->kind != DECODER_SPACES;
}

/* The decoder takes characters off the start of a text. */
static const char *strip(const struct decoder *decoder, const char *bytes, size_t *length)
{
    for (size_t i = 0; i < decoder->strip_count && *length >= decoder->strip_length &&
                       !memcmp(bytes, decoder->strip, decoder->strip_length);
         i++) {
        bytes += decoder->strip_length;
        *length -= decoder->strip_length;
    }
    return bytes;
}

const char *token_text(const struct tokenizer *tokenizer, uint32_t id, bool first, size_t *length)
{
    const struct decoder *decoder = tokenizer_decoder(tokenizer);
    const struct decoded_token *token = decoder_token(decoder, id);
    *length = 0;
    if (!token || tokenizer_is_special(tokenizer, id) || !token_text_is_known(tokenizer))
        return NULL;
    if (token->is_byte || decoder->kind == DECODER_BYTES)
        *length = token->is_byte ? 1 : token->length;
    else
        *length = first ? token->first_length : token->length;
    bool at_first = first && !token->is_byte && decoder->kind != DECODER_BYTES;
    const char *bytes = decoder->pool + (at_first ? token->first_offset : token->offset);
    return first ? strip(decoder, bytes, length) : bytes;
}

const char *token_special_text(const struct tokenizer *tokenizer, uint32_t id, size_t *length)
{
    const struct decoder *decoder = tokenizer_decoder(tokenizer);
    const struct decoded_token *token = decoder_token(decoder, id);
    bool known = token && tokenizer_is_special(tokenizer, id) && token_text_is_known(tokenizer);
    *length = known ? token->length : 0;
    return known ? decoder->pool + token->offset : NULL;
}
