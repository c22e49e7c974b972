/* model/weight_convert: every fp16 number, and the rounding to bf16; and that an engine computes
 * with a file's own precision. */
#include "common/engine/model/weight_convert.h"

#include "common/base/rng.h"
#include "tests/unit/model_answer.h"

#include <math.h>

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* From the definition: fraction and exponent, by ldexp. */
static double f16_value(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double sign = half & 0x8000 ? -1 : 1;
    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static void test_every_f16_is_exact(void **state)
{
    (void)state;
    for (uint32_t half = 0; half <= 0xffff; half++) {
        uint16_t in = (uint16_t)half;
        float out;
        double want = f16_value(in);
        weight_convert(FLOAT_F16, &in, 1, WEIGHT_F32, &out);
        if (isnan(want)) {
            assert_true(isnan(out));
            continue;
        }
        assert_true((double)out == want);
        assert_int_equal(signbit(out) != 0, (in & 0x8000) != 0);
    }
}

/* The nearest of all bf16 numbers by searching around the cut one; ties to the even one. */
static uint16_t nearest(float value)
{
    uint16_t cut = (uint16_t)(to_bits(value) >> 16), up = (uint16_t)(cut + 1);
    double below = from_bits((uint32_t)cut << 16);
    /* Half way beyond the largest number, infinity counts as the next power of two. */
    bool last = (up & 0x7fff) == 0x7f80;
    double above = last ? copysign(0x1p128, value) : (double)from_bits((uint32_t)up << 16);
    double to_below = fabs(value - below), to_above = fabs(above - value);
    if (to_below == to_above)
        return cut % 2 ? up : cut;
    return to_below < to_above ? cut : up;
}

static void check_rounding(float value)
{
    uint16_t out;
    weight_convert(FLOAT_F32, &value, 1, WEIGHT_BF16, &out);
    if (out != nearest(value))
        fail_msg("%a became %04x, the nearest is %04x", (double)value, out, nearest(value));
}

static void test_f32_is_rounded_to_the_nearest_bf16(void **state)
{
    (void)state;
    static const uint32_t edges[] = {0,          1,          0x8000,     0x8001,     0x7fffff,
                                     0x800000,   0x3f808000, 0x3f818000, 0x3f807fff, 0x3f808001,
                                     0x7f7f7fff, 0x7f7f8000, 0x7f7fffff};
    struct rng rng = rng_seeded(5);
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
        check_rounding(from_bits(edges[i]));
        check_rounding(from_bits(edges[i] | 0x80000000));
    }
    for (int i = 0; i < 200000; i++) {
        float value = from_bits((uint32_t)rng_next(&rng));
        if (isfinite(value))
            check_rounding(value);
    }
    static const uint32_t others[][2] = {
        {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0xffffffff, 0xffff}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        uint16_t out;
        weight_convert(FLOAT_F32, &others[i][0], 1, WEIGHT_BF16, &out);
        assert_int_equal(out, others[i][1]);
    }
}

static void test_bf16_stays_what_it_is(void **state)
{
    (void)state;
    for (uint32_t word = 0; word <= 0xffff; word++) {
        uint16_t in = (uint16_t)word, out;
        float wide;
        weight_convert(FLOAT_BF16, &in, 1, WEIGHT_BF16, &out);
        weight_convert(FLOAT_BF16, &in, 1, WEIGHT_F32, &wide);
        bool nan = (in & 0x7fff) > 0x7f80;
        assert_int_equal(out, nan ? in | 0x40 : in);
        assert_int_equal(to_bits(wide), word << 16);
    }
}

/* --- in an engine --- */

/* The hash of the logits behind a prompt, by the folder's model. */
static uint64_t answer_of_folder(bool f32)
{
    return model_answer((struct engine_config){.kernels = {.f32 = f32, .threads = 1}});
}

/* The lower halves of the words of the first tensor, an embedding of fp32 that is the head too,
 * become `low`. */
static void change_low_bits(uint32_t low)
{
    struct model_bytes bytes = model_read(model_folder, "model.safetensors");
    uint64_t header;
    memcpy(&header, bytes.data, sizeof header);
    model_find(bytes, sizeof header, 140,
               "\"model.embed_tokens.weight\":{\"dtype\":\"F32\",\"shape\":[384,128],");
    size_t begin = sizeof header + header;
    for (size_t at = begin; at < begin + (size_t)384 * 128 * 4; at += 4) {
        uint32_t word;
        memcpy(&word, bytes.data + at, sizeof word);
        word = (word & 0xffff0000) | low;
        memcpy(bytes.data + at, &word, sizeof word);
    }
    model_write(model_folder, "model.safetensors", bytes.data, bytes.length);
    free(bytes.data);
}

/* fp32 takes every bit of a file, bf16 the nearest number. */
static void test_an_engine_takes_what_its_arithmetic_holds(void **state)
{
    (void)state;
    model_copy("qwen3", model_folder);
    uint64_t exact = answer_of_folder(true), fast = answer_of_folder(false);
    change_low_bits(0x7000); /* below half a bf16 */
    assert_int_not_equal(answer_of_folder(true), exact);
    assert_int_equal(answer_of_folder(false), fast);
    change_low_bits(0x9000); /* above half */
    assert_int_not_equal(answer_of_folder(false), fast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_f16_is_exact),
        cmocka_unit_test(test_f32_is_rounded_to_the_nearest_bf16),
        cmocka_unit_test(test_bf16_stays_what_it_is),
        cmocka_unit_test(test_an_engine_takes_what_its_arithmetic_holds),
    };
    return cmocka_run_group_tests(tests, model_folder_make, model_folder_drop);
}
